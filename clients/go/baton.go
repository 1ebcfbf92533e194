// Package baton holds locks, terms of elections and claims of Baton through the agent of this
// machine (baton agent).
//
//	guard, err := baton.Lock(ctx, "/deploy")
//	if err != nil {
//		return err
//	}
//	defer guard.Release(ctx)
//	if err := guard.Check(); err != nil { // before each side effect
//		return err
//	}
//
// The context of a function that acquires is that of the wait and of what is held: when it ends,
// the guard's context ends with it. The functions of this package use this user's agent; an [Agent]
// uses the one of a given socket. Errors are of type [Error].
package baton

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Agent is the agent that listens on a socket. The zero value is this user's, or else the
// machine's.
type Agent struct{ path string }

// New returns the agent of a socket.
func New(socket string) *Agent { return &Agent{socket} }

// Option is a parameter of a request. The agent refuses one that the request does not have.
type Option func(*call)

func field(name string, value any) Option { return func(c *call) { c.fields[name] = value } }

func duration(field string, d time.Duration) Option {
	return func(c *call) {
		if d < 0 {
			c.err = newError(ErrRefused, field, fmt.Sprintf("%v is less than 0", d), "give 0 or more")
		}
		// 0 only for 0: it means not to wait.
		c.fields[field] = (d + time.Millisecond - 1) / time.Millisecond
	}
}

// Modes of a lock that is shared.
const ModeRead, ModeWrite = "read", "write"

// Wait limits the wait; 0 does not wait. Without it the wait lasts as long as the context.
func Wait(d time.Duration) Option {
	return func(c *call) {
		duration("wait_ms", d)(c)
		c.limit = d + callLimit
	}
}

// Mode makes a lock [ModeRead] or [ModeWrite].
func Mode(mode string) Option { return field("mode", mode) }

// Slots lets a lock have several holders.
func Slots(n int) Option {
	return func(c *call) {
		if c.fields["mode"] == nil {
			c.fields["mode"] = "slot"
		}
		c.fields["slots"] = n
	}
}

// SessionTimeout is the time after which the servers give up a session without messages.
func SessionTimeout(d time.Duration) Option { return duration("session_timeout_ms", d) }

// LockDelay is the time for which nobody gets an exclusive lock after its holder has died.
func LockDelay(d time.Duration) Option { return duration("lock_delay_ms", d) }

// Name is shown to others; otherwise it is the program's.
func Name(name string) Option { return field("name", name) }

// Data is shown to those who watch an election or members.
func Data(data []byte) Option { return field("data_base64", data) }

// OnWait is called for each change of the position in the wait queue.
// It receives the number of those before, and the holder's node.
func OnWait(f func(place int, heldBy string)) Option { return func(c *call) { c.onWait = f } }

// acquire sends a request, waits until something is held, and returns what `wrap` makes of it.
func acquire[T any](ctx context.Context, a *Agent, c *call, wrap func(*held, *message) *T,
) (*T, error) {
	sent := readClocks()
	l, event, err := a.begin(ctx, c)
	if err != nil {
		return nil, err
	}
	// What is held stays with the agent that has given it.
	h := &held{agent: New(l.agent), path: c.path, link: l, done: make(chan struct{})}
	if err := h.start(ctx, sent, event); err != nil {
		_ = h.endFor(err.Error())
		return nil, err
	}
	go h.read()
	return wrap(h, event), nil
}

func newGuard(h *held, event *message) *Guard {
	return &Guard{h, event.Guard, event.Token, event.Term}
}

// Lock acquires a lock: exclusive, or with [Mode] or [Slots].
func (a *Agent) Lock(ctx context.Context, path string, options ...Option) (*Guard, error) {
	return acquire(ctx, a, newWait("PUT", "lock", path, "", options), newGuard)
}

// Elect acquires leadership. Those who watch the election see [Data].
func (a *Agent) Elect(ctx context.Context, path string, options ...Option) (*Guard, error) {
	return acquire(ctx, a, newWait("PUT", "elect", path, "", options), newGuard)
}

// Join makes this process a member, with [Data].
func (a *Agent) Join(ctx context.Context, path, id string, options ...Option) (*Membership, error) {
	c := newWait("PUT", "member", path, "", append([]Option{field("id", id)}, options...))
	return acquire(ctx, a, c, func(h *held, _ *message) *Membership { return &Membership{h} })
}

// Member is one of the members at a path.
type Member struct{ ID, Data, Session string }

// Members yields the members at a path, a list at each change, until the context is done or yield
// returns false.
func (a *Agent) Members(ctx context.Context, path string) func(yield func([]Member, error) bool) {
	return func(yield func([]Member, error) bool) {
		l, event, err := a.begin(ctx, newWait("GET", "member", path, "", nil))
		if err == nil {
			defer l.close()
		}
		for yield(event.Members, err) && err == nil {
			event, err = l.receive(ctx, forever)
		}
	}
}

// target is a path at an agent.
type target struct {
	agent *Agent
	path  string
}

// Queue is a work queue.
type Queue struct{ target }

// Queue returns the work queue at a path.
func (a *Agent) Queue(path string) Queue { return Queue{target{a, path}} }

// Priority orders items: lower ones are taken first.
func Priority(n int) Option { return field("priority", n) }

// Delay is the time before an item can be taken.
func Delay(d time.Duration) Option { return duration("delay_ms", d) }

// ID makes a second item with the same id be the first one.
func ID(id string) Option { return field("id", id) }

// MaxAttempts is how often an item is given to consumers before it is a dead letter.
func MaxAttempts(n int) Option { return field("max_attempts", n) }

// Visibility is the time for which a claim lasts without [Item.Extend].
func Visibility(d time.Duration) Option { return duration("visibility_ms", d) }

// Put puts an item, and returns its id.
func (q Queue) Put(ctx context.Context, data []byte, options ...Option) (string, error) {
	options = append([]Option{Data(data)}, options...)
	answer, err := q.agent.ask(ctx, newCall("POST", "queue", q.path, "/put", options...))
	return answer.Item, err
}

// Take claims the next item. Its end without an [Item.Ack] gives it to the next consumer.
func (q Queue) Take(ctx context.Context, options ...Option) (*Item, error) {
	// Not PUT: an item is held as long as the answer is open.
	c := newWait("POST", "queue", q.path, "/take", options)
	return acquire(ctx, q.agent, c, func(h *held, event *message) *Item {
		return &Item{h, event.Item, event.Token, event.Attempt, event.Data, event.Claim}
	})
}

// Counter is a counter.
type Counter struct{ target }

// Counter returns the counter at a path.
func (a *Agent) Counter(path string) Counter { return Counter{target{a, path}} }

// Add adds, and returns the value.
func (c Counter) Add(ctx context.Context, delta int64) (int64, error) {
	answer, err := c.agent.ask(ctx, newCall("POST", "counter", c.path, "/add", field("delta", delta)))
	return answer.Value, err
}

// Get returns the value.
func (c Counter) Get(ctx context.Context) (int64, error) {
	answer, err := c.agent.ask(ctx, newCall("GET", "counter", c.path, ""))
	return answer.Value, err
}

// Token names a lock that [Agent.Hold] holds already, and that goes on being held.
func Token(token uint64) Option { return field("token", token) }

// Hold holds an exclusive lock for a time, beyond the end of this process, and returns its token.
func (a *Agent) Hold(ctx context.Context, path string, ttl time.Duration, options ...Option,
) (uint64, error) {
	c := newWait("POST", "hold", path, "", options)
	lock := c.fields
	c.fields = map[string]any{"lock": lock, "token": lock["token"]}
	delete(lock, "token")
	duration("ttl_ms", ttl)(c)
	answer, err := a.ask(ctx, c)
	return answer.Token, err
}

// ReleaseHold releases a lock that [Agent.Hold] holds, from any process of this user.
func (a *Agent) ReleaseHold(ctx context.Context, path string, token uint64) error {
	_, err := a.ask(ctx, newCall("DELETE", "hold", path, fmt.Sprintf("?token=%d", token)))
	return err
}

// TokenIsCurrent returns whether a token is that of the present holder.
func (a *Agent) TokenIsCurrent(ctx context.Context, path string, token uint64) (bool, error) {
	answer, err := a.ask(ctx, newCall("GET", "token", path, fmt.Sprintf("/%d", token)))
	return answer.Current, err
}

// LockState is a lock as others see it: its holders, and its waiters in order.
type LockState struct{ Holders, Waiters []LockNode }

// LockNode is a holder of a lock or one that waits for it.
type LockNode struct {
	Path, Mode string
	// Token is a holder's.
	Token  uint64
	Record struct{ Name, Host string }
}

// Locks returns who holds a lock and who waits for it.
func (a *Agent) Locks(ctx context.Context, path string) (LockState, error) {
	answer, err := a.ask(ctx, newCall("GET", "locks?path=", path, ""))
	return LockState{answer.Holders, answer.Waiters}, err
}

// Health returns the state of the agent and of its sessions.
func (a *Agent) Health(ctx context.Context) (map[string]any, error) {
	answer, err := a.ask(ctx, healthCall(callLimit))
	state := map[string]any{}
	if err == nil {
		err = json.Unmarshal(answer.raw, &state)
	}
	return state, err
}

// Default is the agent of the package's functions.
var Default = &Agent{}

// Lock acquires a lock: see [Agent.Lock].
func Lock(ctx context.Context, path string, options ...Option) (*Guard, error) {
	return Default.Lock(ctx, path, options...)
}

// Elect acquires leadership: see [Agent.Elect].
func Elect(ctx context.Context, path string, options ...Option) (*Guard, error) {
	return Default.Elect(ctx, path, options...)
}
