package baton

import (
	"context"
	"math"
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
	agent *Agent
	// reason is why it is held no longer; empty while it is held. Guarded by mu.
	path, reason string
	link         *link
	ctx          context.Context
	cancel       context.CancelCauseFunc
	done         chan struct{}
	// end is the end of the lease; nil once it is held no longer.
	end    atomic.Pointer[instant]
	anchor anchor

	// last is the event that has ended it, for those who have waited for done.
	last *message

	releaseRequested atomic.Bool

	mu sync.Mutex
}

// Check returns an error unless it is held now: an [ErrLost]. It waits for nothing, and needs no
// message: it is right also after a pause of this process, of the agent or of the network.
func (h *held) Check() error {
	if end := h.end.Load(); end != nil && end.isAhead() {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.checkLocked()
}

func (h *held) checkLocked() error {
	if end := h.end.Load(); h.reason == "" && !end.isAhead() {
		if renewed := end.renewed(); renewed != nil {
			h.end.Store(renewed)
		} else {
			// A lease that has ended stays ended, also if an older message brings a later end.
			h.endLocked(leaseEnded)
		}
	}
	if h.reason == "" {
		return nil
	}
	return &Error{Kind: ErrLost, Thing: h.path, Cause: h.reason, NextStep: nextStep}
}

// endLocked ends it for the first reason; its context is cancelled.
func (h *held) endLocked(reason string) {
	if h.reason != "" {
		return
	}
	h.reason = reason
	h.end.Store(nil)
	if reason == released {
		h.cancel(context.Canceled)
	} else {
		h.cancel(h.checkLocked())
	}
}

// Context is cancelled when it is lost, with a cause that is [ErrLost], when it is released, and
// with the context with which it was acquired.
func (h *held) Context() context.Context { return h.ctx }

func (h *held) left() time.Duration {
	end := h.end.Load()
	if end == nil {
		return callLimit // It is being released.
	} else if end.mono == math.MaxInt64 {
		return forever
	}
	mono, _ := clocks.now()
	return max(time.Duration(end.mono-mono), time.Millisecond)
}

func (h *held) start(ctx context.Context, sent instant, event *message) error {
	h.ctx, h.cancel = context.WithCancelCause(ctx)
	h.end.Store(&instant{mono: math.MaxInt64, wall: math.MaxInt64})
	if event.LeaseUntilNS == 0 {
		return nil
	}
	if h.anchor = newAnchor(sent, event); h.anchor.isWide {
		// It has waited: this reading would cost the lease as much.
		if err := h.readAnchor(ctx, callLimit); err != nil {
			return err
		}
	}
	h.end.Store(h.anchor.end(event.LeaseUntilNS))
	return h.Check()
}

func (h *held) handle(event *message) {
	switch event.Event {
	case "lease":
		if !h.anchor.isSameClock {
			// The rates of two clocks differ; an old reading would cost more and more.
			_ = h.readAnchor(context.Background(), h.left())
		}
		end := h.anchor.end(event.LeaseUntilNS)
		h.mu.Lock()
		defer h.mu.Unlock()
		isNewer := end != nil && h.anchor.bootID == event.BootID
		if h.checkLocked() == nil && isNewer && end.boot > h.end.Load().boot {
			h.end.Store(end)
		}
	case "release_requested":
		h.releaseRequested.Store(true)
	case "lost", "released", "settled", "unknown":
		h.last = event
		if event.Reason == "" {
			event.Reason = "another request ended it"
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.endLocked(event.Reason)
	}
}

// read handles the agent's events until the end.
func (h *held) read() {
	defer close(h.done)
	for {
		event, err := h.link.receive(h.left())
		if err == nil {
			h.handle(event)
		}
		lost := h.Check()
		h.mu.Lock()
		if lost == nil && err != nil {
			h.endLocked(err.(*Error).Cause)
		}
		// While it is being released the response stays open: its end would count as a death.
		isReleased := h.reason == released
		isOver := h.reason != "" && (!isReleased || err != nil || h.last != nil)
		h.mu.Unlock()
		if isOver && !isReleased {
			h.link.close()
		}
		if isOver {
			return
		}
	}
}

// finish ends it with a request, or with the end of its own. A second call does nothing.
func (h *held) finish(ctx context.Context, c *call) (*message, error) {
	h.mu.Lock()
	err := h.checkLocked()
	isReleased := h.reason == released
	// Before the request: no check of another goroutine is true once it is on its way.
	h.endLocked(released)
	h.mu.Unlock()
	if isReleased {
		return new(message), nil
	} else if err != nil {
		return new(message), err
	}
	if err := ctx.Err(); c != nil || err != nil {
		defer func() { h.link.close(); <-h.done }()
		if err != nil {
			return new(message), err
		}
		return h.agent.ask(ctx, c)
	}
	stop := context.AfterFunc(ctx, h.link.close)
	_ = h.link.endBody() // Where it fails, so does the read.
	_ = h.link.conn.SetReadDeadline(time.Now().Add(callLimit))
	<-h.done
	if isKept := stop(); isKept && h.last != nil {
		h.link.giveBack()
	} else {
		h.link.close()
	}
	if h.last == nil {
		cause, next := "the agent has not answered", "read before you repeat it"
		return new(message), &Error{Kind: ErrUnknown, Thing: "release of " + h.path, Cause: cause,
			NextStep: next}
	}
	return h.last, nil
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
func (g *Guard) Release(ctx context.Context) error {
	answer, err := g.finish(ctx, nil)
	switch answer.Event {
	case "lost":
		return &Error{Kind: ErrLost, Thing: g.path, Cause: answer.Reason, NextStep: nextStep}
	case "unknown":
		thing, cause := "release of "+g.path, "no server confirms it"
		return &Error{Kind: ErrUnknown, Thing: thing, Cause: cause, NextStep: answer.NextStep}
	}
	return err
}

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
	if err := g.Check(); err != nil {
		return err
	}
	_, err := g.agent.ask(ctx, g.call("txn", field("writes", ops)))
	return err
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
	options = append(options, field("claim", i.claim))
	return newCall("POST", "queue", i.path, "/"+action, options...)
}

// Ack removes the item: it is done.
func (i *Item) Ack(ctx context.Context) error {
	_, err := i.finish(ctx, i.call("ack"))
	return err
}

// Nack gives the item back for after delay, or to the dead letters after its last attempt.
func (i *Item) Nack(ctx context.Context, reason string, delay time.Duration) error {
	_, err := i.finish(ctx, i.call("nack", field("reason", reason), Delay(delay)))
	return err
}

// Extend extends the claim by the time that it had at first.
func (i *Item) Extend(ctx context.Context) error {
	if err := i.Check(); err != nil {
		return err
	}
	_, err := i.agent.ask(ctx, i.call("extend"))
	return err
}

// Membership is a registration of this process. It has no lease: its loss may be noticed late.
type Membership struct{ *held }

// Leave ends the membership.
func (m *Membership) Leave() error {
	_, err := m.finish(context.Background(), nil)
	return err
}
