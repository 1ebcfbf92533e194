package baton

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

const head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

func chunk(event map[string]any) string {
	line, _ := json.Marshal(event)
	return fmt.Sprintf("%x\r\n%s\n\r\n", len(line)+1, line)
}

func whole(answer any, status string) string {
	body, _ := json.Marshal(answer)
	return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
}

// lab is a scripted agent, and clocks that a test sets. The agent's clock is `offset` ahead of this
// process's, its first message takes `delay`.
type lab struct {
	t                  *testing.T
	mu                 sync.Mutex
	mono, wall, boot   int64
	hasBoot            bool
	offset, delay      time.Duration
	healths            int
	bootID, bootIDHere string
	agent              *Agent
	send               func(string)
}

func newLab(t *testing.T) *lab {
	l := &lab{t: t, mono: 5e12, wall: 9e17, boot: 7e12, hasBoot: true, bootID: "this",
		bootIDHere: "this"}
	before := clocks
	t.Cleanup(func() { clocks = before })
	clocks = clock{
		now: func() (int64, int64) {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.mono, l.wall
		},
		boot: func() (int64, bool) {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.boot, l.hasBoot
		},
		bootID: func() string { return l.bootIDHere },
	}
	stopped := make(chan bool)
	l.agent = scripted(t, func(url string, send func(string)) {
		if url == "/v1/health" {
			l.healths++
			send(whole(l.reading(10), "200 OK"))
			return
		}
		held := l.reading(10)
		held["event"], held["guard"], held["token"] = "held", "g", 1
		l.advance(l.delay)
		l.send = send
		send(head + chunk(held))
		<-stopped
	})
	// Runs before the clocks are put back: no goroutine reads them then.
	t.Cleanup(func() { close(stopped) })
	return l
}

func (l *lab) advance(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mono, l.wall, l.boot = l.mono+int64(d), l.wall+int64(d), l.boot+int64(d)
}

// sleep is that of the machine.
func (l *lab) sleep(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wall, l.boot = l.wall+int64(d), l.boot+int64(d)
}

func (l *lab) setWall(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wall += int64(d)
}

func (l *lab) reading(left float64) map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.boot + int64(l.offset)
	return map[string]any{"now_ns": now, "boot_id": l.bootID,
		"lease_until_ns": now + int64(left*1e9)}
}

func (l *lab) lock() *Guard {
	l.t.Helper()
	guard, err := l.agent.Lock(context.Background(), "/a")
	must(l.t, err)
	l.t.Cleanup(func() { guard.link.close(); <-guard.done })
	return guard
}

// deliver sends an event, and waits until the client has handled it.
func (l *lab) deliver(guard *Guard, event map[string]any) {
	l.t.Helper()
	l.send(chunk(event) + chunk(map[string]any{"event": "release_requested"}))
	for end := time.Now().Add(patience); !guard.ReleaseRequested(); {
		if time.Now().After(end) {
			l.t.Fatal("the event was not handled")
		}
		time.Sleep(time.Millisecond)
	}
	guard.releaseRequested.Store(false)
}

// lasts asserts that the lease ends the given number of seconds from now.
func (l *lab) lasts(guard *Guard, seconds float64) {
	l.t.Helper()
	left := time.Duration(seconds * 1e9)
	l.advance(left - 1)
	must(l.t, guard.Check())
	l.advance(1)
	expect(l.t, guard.Check(), ErrLost)
}

func TestTheSameClockNeedsNoAllowance(t *testing.T) {
	l := newLab(t)
	l.lasts(l.lock(), 10)
	equal(t, l.healths, 0)
}

func TestAnotherClockLosesOnePercent(t *testing.T) {
	for _, set := range []func(*lab){
		func(l *lab) { l.bootIDHere = "another" },
		func(l *lab) { l.bootID, l.bootIDHere = "", "" },
		func(l *lab) { l.hasBoot = false },
		func(l *lab) { l.offset = -600 * time.Second },
		func(l *lab) { l.offset = 600 * time.Second },
		func(l *lab) { l.offset = -1 },
		func(l *lab) { l.offset = 1 },
	} {
		l := newLab(t)
		set(l)
		l.lasts(l.lock(), 9.9)
	}
}

func TestALateMessageIsCountedFromBeforeTheRequest(t *testing.T) {
	for boot, expected := range map[string]float64{"this": 9.95, "another": 9.85} {
		l := newLab(t)
		l.delay, l.bootIDHere = 50*time.Millisecond, boot
		l.lasts(l.lock(), expected)
	}
}

func TestAfterAWaitTheClocksAreComparedAgain(t *testing.T) {
	for boot, expected := range map[string]float64{"this": 7, "another": 6.93} {
		l := newLab(t)
		l.delay, l.bootIDHere = 3*time.Second, boot
		l.lasts(l.lock(), expected)
		equal(t, l.healths, 1)
	}
}

func TestALeaseThatHasEndedWhenItArrivesIsNotHeld(t *testing.T) {
	l := newLab(t)
	l.delay = 10 * time.Second
	_, err := l.agent.Lock(context.Background(), "/a")
	expect(t, err, ErrLost)
}

func TestALongerLeaseCountsAndAnOlderOneDoesNotShortenIt(t *testing.T) {
	l := newLab(t)
	guard := l.lock()
	l.advance(3 * time.Second)
	longer, shorter := l.reading(10), l.reading(2)
	longer["event"], shorter["event"] = "lease", "lease"
	l.deliver(guard, longer)
	l.deliver(guard, shorter)
	l.lasts(guard, 10)
}

func TestAnotherClockIsReadAgainWithEachLease(t *testing.T) {
	l := newLab(t)
	l.bootIDHere = "another"
	guard := l.lock()
	l.advance(5 * time.Second)
	event := l.reading(10)
	event["event"] = "lease"
	l.deliver(guard, event)
	l.lasts(guard, 9.9)
}

func TestALeaseThatHasEndedStaysEnded(t *testing.T) {
	l := newLab(t)
	guard := l.lock()
	later := l.reading(100)
	later["event"] = "lease"
	l.advance(10 * time.Second)
	l.send(chunk(later))
	<-guard.done
	l.advance(-5 * time.Second)
	expect(t, guard.Check(), ErrLost)
	expect(t, context.Cause(guard.Context()), ErrLost)
}

func TestAMachineThatSleptHasNoLongerLease(t *testing.T) {
	for _, hasBoot := range []bool{true, false} {
		l := newLab(t)
		l.hasBoot = hasBoot
		guard := l.lock()
		l.sleep(9 * time.Second)
		must(t, guard.Check())
		l.sleep(time.Second)
		expect(t, guard.Check(), ErrLost)
	}
}

func TestALeaseThatComesAfterASleepEndsWhereItEnds(t *testing.T) {
	l := newLab(t)
	guard := l.lock()
	l.sleep(5 * time.Second)
	event := l.reading(10)
	event["event"] = "lease"
	l.deliver(guard, event)
	// Also for a machine whose wall clock is put back.
	l.setWall(-time.Hour)
	l.lasts(guard, 10)
}

func TestAWallClockThatIsSetEndsNoLeaseAndExtendsNone(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		l := newLab(t)
		guard := l.lock()
		l.setWall(step)
		must(t, guard.Check())
		l.lasts(guard, 10)
	}
}

func TestAStreamThatFailsWithoutACauseEndsTheGuard(t *testing.T) {
	for _, event := range []map[string]any{
		{"event": "error", "thing": "/a"}, {"event": "lost", "reason": ""},
	} {
		l := newLab(t)
		guard := l.lock()
		l.send(chunk(event))
		<-guard.done
		expect(t, guard.Check(), ErrLost)
		expect(t, context.Cause(guard.Context()), ErrLost)
	}
}

func TestAReleaseEndsTheLeaseBeforeItIsSent(t *testing.T) {
	guards, seen := make(chan *Guard, 1), make(chan bool, 1)
	agent, _ := keeping(t, func(request *http.Request, send func(string)) bool {
		holding(request, send, func() { seen <- (<-guards).Check() != nil }, "unknown")
		return true
	})
	guard, err := agent.Lock(context.Background(), "/a")
	must(t, err)
	guards <- guard
	expect(t, guard.Release(context.Background()), ErrUnknown)
	equal(t, <-seen, true)
	equal(t, context.Cause(guard.Context()), context.Canceled)
}

func TestLocksAndOtherRequestsTakeTurnsOnOneConnection(t *testing.T) {
	ctx, nothing := context.Background(), func() {}
	agent, count := keeping(t, func(request *http.Request, send func(string)) bool {
		switch request.URL.Path {
		case "/v1/lock/a":
			holding(request, send, nothing, "released")
		case "/v1/lock/busy":
			send(whole(map[string]any{"thing": "/busy", "code": "not_acquired"}, "409 Conflict"))
			_, _ = io.Copy(io.Discard, request.Body)
		default:
			_, _ = io.Copy(io.Discard, request.Body)
			send(whole(map[string]any{"value": 7}, "200 OK"))
		}
		return true
	})
	for turn := 0; turn < 3; turn++ {
		guard, err := agent.Lock(ctx, "/a")
		must(t, err)
		must(t, guard.Release(ctx))
		_, err = agent.Lock(ctx, "/busy")
		expect(t, err, ErrNotAcquired)
		_, err = agent.Counter("/hits").Get(ctx)
		must(t, err)
	}
	equal(t, count.Load(), 1)
}

func TestAConnectionThatIsNotQuietIsNotUsedAgain(t *testing.T) {
	ctx, nothing := context.Background(), func() {}
	for _, last := range []string{"", "HTTP/1.1 200 OK\r\n\r\n"} {
		last := last
		handled := make(chan bool, 2)
		agent, count := keeping(t, func(request *http.Request, send func(string)) bool {
			holding(request, send, nothing, "released")
			send(last)
			handled <- true
			// Ends it, where it has sent nothing more.
			return last != ""
		})
		for turn := 0; turn < 2; turn++ {
			guard, err := agent.Lock(ctx, "/a")
			must(t, err)
			must(t, guard.Release(ctx))
			<-handled
			awaitUnquiet(t, agent)
		}
		equal(t, count.Load(), 2)
	}
}

func TestTheOptionsOfACallerStayItsOwn(t *testing.T) {
	// Two requests of one slice would otherwise write to the place behind its end at a time.
	options := make([]Option, 0, 1)
	agent := New("/no/agent")
	_, _ = agent.Join(context.Background(), "/a", "id", options...)
	_, _ = agent.Queue("/a").Put(context.Background(), nil, options...)
	equal(t, options[:1][0] == nil, true)
}

// awaitUnquiet waits until what the agent has done last has come to the connections that are kept.
func awaitUnquiet(t *testing.T, agent *Agent) {
	t.Helper()
	idle.Lock()
	defer idle.Unlock()
	for _, l := range idle.links[agent.path] {
		for end := time.Now().Add(patience); isQuiet(l.conn); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("nothing has come")
			}
		}
	}
}

func TestAnAgentOfTheVersionBeforeIsNamed(t *testing.T) {
	agent := scripted(t, func(url string, send func(string)) {
		refusal := map[string]any{"thing": "PUT " + url, "code": "refused"}
		send(whole(refusal, "405 Method Not Allowed"))
	})
	_, err := agent.Lock(context.Background(), "/a")
	next := expect(t, err, ErrRefused).NextStep
	equal(t, next, "upgrade the agent, which is older than this client")
}

func TestAReleaseWithoutAnAnswerIsUnknown(t *testing.T) {
	agent, _ := keeping(t, func(request *http.Request, send func(string)) bool {
		holding(request, func(text string) {
			if strings.HasPrefix(text, head) {
				send(text)
			}
		}, func() {}, "released")
		return false
	})
	guard, err := agent.Lock(context.Background(), "/a")
	must(t, err)
	expect(t, guard.Release(context.Background()), ErrUnknown)
}

func TestALostGuardSendsNoWrite(t *testing.T) {
	l := newLab(t)
	guard := l.lock()
	guard.agent = scripted(t, func(url string, send func(string)) { t.Error(url) })
	l.advance(10 * time.Second)
	expect(t, guard.Txn(context.Background()), ErrLost)
	expect(t, guard.Release(context.Background()), ErrLost)
}

func TestAChangeWithoutAnAnswerIsUnknownAndAReadIsNot(t *testing.T) {
	hits := scripted(t, func(string, func(string)) {}).Counter("/hits")
	_, err := hits.Add(context.Background(), 1)
	equal(t, expect(t, err, ErrUnknown).Thing, "POST /v1/counter/hits/add")
	_, err = hits.Get(context.Background())
	expect(t, err, ErrUnavailable)
}

func TestServersThatDoNotAnswerAreUnavailableSinceTheAgentsTime(t *testing.T) {
	agent := scripted(t, func(url string, send func(string)) {
		refusal := map[string]any{"thing": "/a", "code": "unavailable", "unavailable_for_ms": 5000}
		send(whole(refusal, "503 Service Unavailable"))
	})
	ctx := context.Background()
	_, locked := agent.Lock(ctx, "/a")
	_, read := agent.Counter("/a").Get(ctx)
	for _, err := range []error{locked, read} {
		since := time.Since(expect(t, err, ErrUnavailable).Since)
		if since < 5*time.Second || since > patience+5*time.Second {
			t.Fatal(since)
		}
	}
}

func TestThatWhichIsNoAnswerIsUnavailable(t *testing.T) {
	ok := "HTTP/1.1 200 OK\r\n"
	for _, data := range []string{
		"SSH-2.0-OpenSSH\r\n\r\n", ok + "\r\n", ok + "no field\r\n\r\n",
		ok + "Content-Length: 1\r\n\r\n{", ok + "Content-Length: 2\r\n\r\n[]",
		ok + "Content-Length: 9\r\n\r\n{", ok + "Content-Length: x\r\n\r\n", head + "x\r\n",
		strings.Repeat("x", 17<<20), head + "2000000\r\n\"" + strings.Repeat("x", 17<<20),
	} {
		agent := scripted(t, func(_ string, send func(string)) { send(data) })
		_, err := agent.Health(context.Background())
		if e := expect(t, err, ErrUnavailable); !strings.Contains(e.NextStep, "baton agent") {
			t.Fatal(e)
		}
	}
	agent := scripted(t, func(_ string, send func(string)) {
		send("HTTP/1.1 431 Too Large\r\nContent-Length: 0\r\n\r\n")
	})
	_, err := agent.Health(context.Background())
	expect(t, err, ErrRefused)
}

func BenchmarkCheck(b *testing.B) {
	h := &held{}
	h.end.Store(readClocks().plus(int64(time.Hour)))
	for i := 0; i < b.N; i++ {
		if h.Check() != nil {
			b.Fatal("lost")
		}
	}
}
