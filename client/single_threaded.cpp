// Debian's archives are compiled for executables, and reach this variable of glibc's as if it lay in
// the object that they are linked into. In a shared library it must then lie in that library: false,
// which makes reference counts atomic.
extern "C" {
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
}
