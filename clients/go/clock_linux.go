package baton

import (
	"syscall"
	"unsafe"
)

// bootClock reads CLOCK_BOOTTIME, which goes on while the machine sleeps. A system call: too slow
// for each check.
func bootClock() (int64, bool) {
	const clockBoottime = 7
	var reading syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime,
		uintptr(unsafe.Pointer(&reading)), 0)
	return reading.Nano(), errno == 0
}
