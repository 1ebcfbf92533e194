package baton

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	nextStep   = "stop what it protects, then acquire it again"
	released   = "it was released"
	leaseEnded = "the lease ended: no server answered in time, or this process was paused"
)

// held is the state of something that is held as long as its response is open.
type held struct {
	agent  *Agent
	path   string
	link   *link
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{}
	// end is the end of the lease; nil once it is held no longer.
	end    atomic.Pointer[instant]
	anchor anchor

	// last is the event that has ended it, or the error of the connection: read it after done.
	last *message

	releaseRequested atomic.Bool

	mu sync.Mutex
	// lost is the error of a check: an *Error once it is held no longer. Guarded by mu.
	lost error
}

// Check returns an error unless it is held now: an [ErrLost]. It waits for nothing, and needs no
// message: it is right also after a pause of this process, of the agent or of the network.
func (h *held) Check() error {
	if h.end.Load().isAhead() {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.checkLocked()
}

func (h *held) checkLocked() error {
	if end := h.end.Load(); h.lost == nil && !end.isAhead() {
		if renewed := end.renewed(); renewed != nil {
			h.end.Store(renewed)
		} else {
			// A lease that has ended stays ended, also if an older message brings a later end.
			h.endLocked(leaseEnded)
		}
	}
	return h.lost
}

// endLocked ends it; its context is cancelled. While it is being released its response stays open:
// the end of that would count as a death.
func (h *held) endLocked(reason string) {
	h.lost = newError(ErrLost, h.path, reason, nextStep)
	h.end.Store(nil)
	if reason == released {
		h.cancel(context.Canceled)
	} else {
		h.cancel(h.lost)
		h.link.close()
	}
}

// endFor ends it for a reason. Returns an error if it was held no longer.
func (h *held) endFor(reason string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.checkLocked()
	if err == nil {
		h.endLocked(reason)
	}
	return err
}

// Context is cancelled when it is lost, with a cause that is [ErrLost], when it is released, and
// with the context with which it was acquired.
func (h *held) Context() context.Context { return h.ctx }

// left returns the time left of the lease, or of a release.
func (h *held) left() time.Duration {
	if end := h.end.Load(); end != nil {
		mono, _ := clocks.now()
		return max(time.Duration(end.mono-mono), time.Millisecond)
	}
	return callLimit
}

func (h *held) start(ctx context.Context, sent instant, event *message) error {
	h.ctx, h.cancel = context.WithCancelCause(ctx)
	h.end.Store(&instant{mono: forever, wall: forever})
	if event.LeaseUntilNS != 0 {
		if h.anchor = newAnchor(sent, event); h.anchor.isWide {
			// It has waited: this reading would cost the lease as much.
			if err := h.readAnchor(ctx); err != nil {
				return err
			}
		}
		h.end.Store(h.anchor.end(event.LeaseUntilNS))
	}
	return h.Check()
}

// readAnchor compares the clocks again. Where that fails, the anchor stays what it was: right too.
func (h *held) readAnchor(ctx context.Context) error {
	sent := readClocks()
	answer, err := h.agent.ask(ctx, healthCall(min(h.left(), callLimit)))
	if err == nil {
		h.anchor = newAnchor(sent, answer)
	}
	return err
}

// extend moves the end of the lease to that of an event, unless it is earlier.
func (h *held) extend(event *message) {
	if !h.anchor.isSameClock {
		// The rates of two clocks differ; an old reading would cost more and more.
		_ = h.readAnchor(context.Background())
	}
	end := h.anchor.end(event.LeaseUntilNS)
	h.mu.Lock()
	defer h.mu.Unlock()
	isNewer := end != nil && h.anchor.bootID == event.BootID
	if h.checkLocked() == nil && isNewer && end.boot > h.end.Load().boot {
		h.end.Store(end)
	}
}

// read handles the agent's events until the end.
func (h *held) read() {
	defer close(h.done)
	for h.last == nil {
		event, _ := h.link.receive(context.Background(), h.left())
		switch event.Event {
		case "lease":
			h.extend(event)
		case "release_requested":
			h.releaseRequested.Store(true)
		case "lost", "released", "settled", "unknown", "error":
			h.last = event
			event.Reason += event.Cause // An event has one of them at most.
			if event.Reason == "" {
				event.Reason = "another request ended it"
			}
			_ = h.endFor(event.Reason)
		}
	}
}

// ask sends a request while it is held.
func (h *held) ask(ctx context.Context, c *call) error {
	if err := h.Check(); err != nil {
		return err
	}
	_, err := h.agent.ask(ctx, c)
	return err
}

// finish ends it with a request, or with the end of its own. A second call does nothing.
func (h *held) finish(ctx context.Context, c *call) error {
	// Before the request: no check of another goroutine is true once it is on its way.
	err := h.endFor(released)
	if err != nil && err.(*Error).Cause == released {
		return nil
	} else if err == nil {
		err = ctx.Err()
	}
	if err == nil && c != nil {
		_, err = h.agent.ask(ctx, c)
	}
	if err != nil || c != nil {
		h.link.close()
		return err
	}
	stop := context.AfterFunc(ctx, h.link.close)
	h.link.endBody()
	_ = h.link.conn.SetReadDeadline(time.Now().Add(callLimit))
	<-h.done
	if stop() { // Else the context's end closes it.
		h.link.giveBack()
	}
	switch h.last.Event {
	case "lost":
		return newError(ErrLost, h.path, h.last.Reason, nextStep)
	case "unknown":
		return newError(ErrUnknown, "release of "+h.path, "no server confirms it", h.last.NextStep)
	case "error":
		return newError(ErrUnknown, "release of "+h.path, h.last.Reason, readFirst)
	}
	return nil
}

// Guard is a lock or a term of an election that is held.
type Guard struct {
	*held
	// ID is the agent's name of it.
	ID string
	// Token is greater than that of each earlier holder: the fencing token.
	Token uint64
	// Term is the number of the term of an election, else 0.
	Term uint64
}

// ReleaseRequested returns whether somebody has asked the holder to release.
func (g *Guard) ReleaseRequested() bool { return g.releaseRequested.Load() }

// Release releases, and waits until a server has confirmed it. A second call does nothing.
func (g *Guard) Release(ctx context.Context) error { return g.finish(ctx, nil) }

func (g *Guard) call(action string, options ...Option) *call {
	return newCall("POST", "guard", "/"+g.ID+"/"+action, "", options...)
}

// Op is one part of a guarded write: "set", "create", "delete" or "check" of a znode, all but
// "create" only if it has a version, where one is given.
type Op struct {
	Op      string `json:"op"`
	Path    string `json:"path"`
	Data    []byte `json:"data_base64,omitempty"`
	Version *int   `json:"version,omitempty"`
}

// Txn applies all parts together if the lock is still held.
func (g *Guard) Txn(ctx context.Context, ops ...Op) error {
	return g.ask(ctx, g.call("txn", field("writes", ops)))
}

// Item is a claim on an item of a work queue.
type Item struct {
	*held
	ID    string
	Token uint64
	// Attempt counts how often the item was taken.
	Attempt int
	Data    []byte
	claim   string
}

func (i *Item) call(action string, options ...Option) *call {
	return newCall("POST", "queue", i.path, "/"+action, append(options, field("claim", i.claim))...)
}

// Ack removes the item: it is done.
func (i *Item) Ack(ctx context.Context) error { return i.finish(ctx, i.call("ack")) }

// Nack gives the item back for after delay, or to the dead letters after its last attempt.
func (i *Item) Nack(ctx context.Context, reason string, delay time.Duration) error {
	return i.finish(ctx, i.call("nack", field("reason", reason), Delay(delay)))
}

// Extend extends the claim by the time that it had at first.
func (i *Item) Extend(ctx context.Context) error { return i.ask(ctx, i.call("extend")) }

// Membership is a registration of this process. It has no lease: its loss may be noticed late.
type Membership struct{ *held }

// Leave ends the membership.
func (m *Membership) Leave() error { return m.finish(context.Background(), nil) }
