# cmake -D FOLDER=... -D HEADERS=a;b -D OUTPUT=file.cpp -P embed.cmake: the headers as C++ constants.
set(text "// Made by embed.cmake from the device headers.\n#include \"templates/headers.h\"\n\n")
string(APPEND text "namespace tilewright::templates {\n\n")
string(APPEND text "extern const std::pair<const char*, const char*> kEmbeddedHeaders[];\n")
string(APPEND text "const std::pair<const char*, const char*> kEmbeddedHeaders[] = {\n")
foreach(header ${HEADERS})
  # In hexadecimal, since CMake's own lists and brackets would change some texts.
  file(READ ${FOLDER}/${header} content HEX)
  string(REGEX REPLACE "(..)" "\\\\x\\1" content "${content}")
  # A literal per line: no escape runs into what follows it, and none is too long.
  string(REGEX REPLACE "\\\\x0a" "\\\\n\"\n     \"" content "${content}")
  string(APPEND text "    {\"${header}\",\n     \"${content}\"},\n")
endforeach()
string(APPEND text "    {nullptr, nullptr}};\n\n}  // namespace tilewright::templates\n")
file(WRITE ${OUTPUT} "${text}")
