//go:build unix

package baton

import (
	"net"
	"os/exec"
	"syscall"
)

// Run runs a command in a process group of its own, and returns its error.
//
// Kills the group when the lock is lost or the guard's context ends, and what is left of it at the
// end. Returns an [ErrLost] if the lock is held no longer then. If this process dies first, the
// command keeps the lock.
func (g *Guard) Run(cmd *exec.Cmd) error {
	if err := g.Check(); err != nil {
		return err
	}
	file, err := g.link.conn.File()
	if err != nil {
		return err
	}
	defer file.Close()
	// What is left of the command might keep what this process holds later.
	g.link.response.Close = true
	cmd.ExtraFiles = append(cmd.ExtraFiles, file)
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		for errno := syscall.EINTR; errno == syscall.EINTR; {
			// The first argument is P_PID. The command stays a zombie, which keeps its number.
			_, _, errno = syscall.Syscall6(syscall.SYS_WAITID, 1, uintptr(cmd.Process.Pid), 0,
				syscall.WEXITED|syscall.WNOWAIT, 0, 0)
		}
		close(exited)
	}()
	select {
	case <-exited:
	case <-g.ctx.Done():
	}
	// Before Wait: nobody else has the number of the group yet.
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	err = cmd.Wait()
	if lost := g.Check(); lost != nil {
		return lost
	}
	return err
}

// isQuiet returns whether a connection without a request is open, and nothing has come.
func isQuiet(conn *net.UnixConn) (isQuiet bool) {
	raw, _ := conn.SyscallConn() // It does not fail for a connection.
	_ = raw.Control(func(fd uintptr) {
		_, _, errno := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		isQuiet = errno == syscall.EAGAIN
	})
	return isQuiet // False for one that is closed.
}
