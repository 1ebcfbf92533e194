package baton

import (
	"os"
	"strings"
	"sync"
	"time"
)

var started = time.Now()

// clock reads the clocks of leases. Variables, so that tests can set them.
type clock struct {
	// now reads the monotonic clock, which may stand still while the machine sleeps, and the wall
	// clock, which goes on then but may be set. Both at once cost less than one system call.
	now func() (mono, wall int64)
	// boot reads a clock that goes on while the machine sleeps and cannot be set; false if none.
	boot   func() (int64, bool)
	bootID func() string
}

var clocks = clock{
	now: func() (int64, int64) {
		now := time.Now()
		return int64(now.Sub(started)), now.UnixNano()
	},
	boot: bootClock,
	// Read once: a process does not outlive the boot of its machine.
	bootID: sync.OnceValue(func() string {
		text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
		return strings.TrimSpace(string(text))
	}),
}

// instant is a reading of all clocks.
type instant struct {
	mono, wall, boot int64
	hasBoot          bool
}

func readClocks() instant {
	mono, wall := clocks.now()
	boot, hasBoot := clocks.boot()
	if !hasBoot {
		boot = mono
	}
	return instant{mono, wall, boot, hasBoot}
}

func (i instant) plus(left int64) *instant {
	return &instant{i.mono + left, i.wall + left, i.boot + left, i.hasBoot}
}

// isAhead needs no system call: a machine that has slept has moved its wall clock on.
func (i *instant) isAhead() bool {
	mono, wall := clocks.now()
	return i != nil && mono < i.mono && wall < i.wall
}

// renewed returns the same end by the clocks of now: the wall clock may have been set, and the
// monotonic one may have stood still. Returns nil once the end has come.
func (i *instant) renewed() *instant {
	now := readClocks()
	if i != nil && now.hasBoot && i.hasBoot && now.boot < i.boot && now.mono < i.mono {
		return now.plus(i.boot - now.boot)
	}
	return nil
}

// anchor is a reading of the agent's clock, which it made after this process had read `sent`.
//
// What ends so long after the agent's reading ends no earlier than so long after `sent`, however
// late a message is. Two clocks of one boot run at one rate, others within 1 %.
type anchor struct {
	sent                instant
	agentNS             int64
	bootID              string
	isWide, isSameClock bool
}

func newAnchor(sent instant, answer *message) anchor {
	received := readClocks()
	return anchor{
		sent: sent, agentNS: answer.NowNS, bootID: answer.BootID,
		isWide: received.mono-sent.mono > int64(100*time.Millisecond),
		isSameClock: answer.BootID != "" && answer.BootID == clocks.bootID() && sent.hasBoot &&
			sent.boot <= answer.NowNS && answer.NowNS <= received.boot,
	}
}

// end returns the end of a lease on this process's clocks, never too late; nil if it has come.
func (a *anchor) end(leaseUntilNS int64) *instant {
	left := leaseUntilNS - a.agentNS
	if !a.isSameClock {
		left = left * 99 / 100
	}
	end := a.sent.plus(left)
	if end.hasBoot {
		// The machine may have slept since the anchor was read.
		return end.renewed()
	}
	return end
}
