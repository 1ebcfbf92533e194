package baton

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestOneHoldsAtATimeAndTokensRise(t *testing.T) {
	ctx := needAgent(t)
	first, err := Lock(ctx, "/deploy", Name("first"))
	must(t, err)
	must(t, first.Check())
	equal(t, expect(t, try(ctx, "/deploy"), ErrNotAcquired).HeldBy, "first")
	_, err = Lock(ctx, "/deploy", Wait(50*time.Millisecond))
	expect(t, err, ErrNotAcquired)
	state, err := Default.Locks(ctx, "/deploy")
	must(t, err)
	equal(t, state.Holders[0].Token, first.Token)
	must(t, first.Release(ctx))
	must(t, first.Release(ctx))
	second, err := Lock(ctx, "/deploy")
	must(t, err)
	if second.Token <= first.Token {
		t.Fatal(second.Token)
	}
	expect(t, first.Check(), ErrLost)
	must(t, second.Release(ctx))
}

// waiter acquires in another goroutine; it has begun to wait.
func waiter(t *testing.T, ctx context.Context, path string, options ...Option) chan error {
	t.Helper()
	waits, result := make(chan bool, 9), make(chan error, 1)
	go func() {
		onWait := OnWait(func(place int, heldBy string) { waits <- place == 1 && heldBy != "" })
		guard, err := Lock(ctx, path, append(options, onWait)...)
		if err == nil {
			err = guard.Release(ctx)
		}
		result <- err
	}()
	select {
	case isNext := <-waits:
		equal(t, isNext, true)
	case err := <-result:
		t.Fatal("did not wait:", err)
	}
	return result
}

func TestAWaiterIsNotifiedOfItsPlaceAndIsNext(t *testing.T) {
	ctx := needAgent(t)
	guard, err := Lock(ctx, "/place")
	must(t, err)
	result := waiter(t, ctx, "/place")
	must(t, guard.Release(ctx))
	must(t, <-result)
}

func TestACancelledWaitLeavesNoWaiter(t *testing.T) {
	ctx := needAgent(t)
	guard, err := Lock(ctx, "/cancel")
	must(t, err)
	waiting, cancel := context.WithCancel(ctx)
	result := waiter(t, waiting, "/cancel")
	cancel()
	equal(t, <-result, context.Canceled)
	must(t, guard.Release(ctx))
	guard, err = Lock(ctx, "/cancel")
	must(t, err)
	must(t, guard.Release(ctx))
}

func TestTheDeathOfAProgramPassesItsLockOnWithoutTheSessionTimeout(t *testing.T) {
	ctx := needAgent(t)
	holder, line := program(t, "death")
	token, err := strconv.ParseUint(line, 10, 64)
	must(t, err)
	// All guards share one session, which lives on: nothing but the closed socket frees the lock.
	result := waiter(t, ctx, "/death", SessionTimeout(40*time.Second))
	must(t, holder.Process.Kill())
	must(t, <-result)
	isCurrent, err := Default.TokenIsCurrent(ctx, "/death", token)
	must(t, err)
	equal(t, isCurrent, false)
}

func TestAGuardedWriteAppliesWhileTheLockIsHeldAndNotAfter(t *testing.T) {
	ctx := needAgent(t)
	guard, err := Lock(ctx, "/txn")
	must(t, err)
	must(t, guard.Txn(ctx, Op{Op: "create", Path: "/state", Data: []byte{0, 255}}))
	expect(t, guard.Txn(ctx, Op{Op: "create", Path: "/state"}), ErrRefused)
	version := 0
	must(t, guard.Txn(ctx, Op{Op: "set", Path: "/state", Data: []byte("a"), Version: &version}))
	expect(t, guard.Txn(ctx, Op{Op: "check", Path: "/state", Version: &version}), ErrRefused)
	endFromOutside(t, ctx, guard)
	<-guard.Context().Done()
	// The agent refuses it, whatever this process knows by now.
	_, err = Default.ask(ctx, guard.call("txn", field("writes", []Op{{Op: "set", Path: "/state"}})))
	expect(t, err, ErrLost)
	expect(t, guard.Txn(ctx), ErrLost)
}

func TestALossCancelsTheGuardsContextWithItsCause(t *testing.T) {
	ctx := needAgent(t)
	guard, err := Lock(ctx, "/lost")
	must(t, err)
	endFromOutside(t, ctx, guard)
	<-guard.Context().Done()
	lost := expect(t, context.Cause(guard.Context()), ErrLost)
	equal(t, lost.Cause, "another request ended it")
	expect(t, guard.Check(), ErrLost)
	expect(t, guard.Release(ctx), ErrLost)
}

func TestAGuardsContextEndsWithItsCallers(t *testing.T) {
	ctx := needAgent(t)
	work, cancel := context.WithCancel(ctx)
	guard, err := Lock(work, "/caller")
	must(t, err)
	cancel()
	<-guard.Context().Done()
	must(t, guard.Check())
	must(t, guard.Release(ctx))
}

func TestACommandIsKilledWithItsGroupAtTheLoss(t *testing.T) {
	ctx := needAgent(t)
	guard, err := Lock(ctx, "/killed")
	must(t, err)
	read, write, err := os.Pipe()
	must(t, err)
	cmd := exec.Command("sh", "-c", "sleep 1000 & echo; wait")
	cmd.Stdout = write
	go func() {
		_, _ = read.Read(make([]byte, 1))
		_, _ = Default.ask(ctx, guard.call("release"))
	}()
	expect(t, guard.Run(cmd), ErrLost)
	must(t, write.Close())
	// The end of the file: no process of the group has the pipe any more.
	rest, err := io.ReadAll(read)
	must(t, err)
	equal(t, len(bytes.TrimSpace(rest)), 0)
}

func TestACommandGivesItsExitCodeAndLeavesTheLockHeld(t *testing.T) {
	ctx := needAgent(t)
	guard, err := Lock(ctx, "/run")
	must(t, err)
	var exit *exec.ExitError
	if err := guard.Run(exec.Command("sh", "-c", "exit 7")); !errors.As(err, &exit) {
		t.Fatal(err)
	}
	equal(t, exit.ExitCode(), 7)
	if err := guard.Run(exec.Command("/nonexistent")); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	must(t, guard.Check())
	must(t, guard.Release(ctx))
}

func TestACommandKeepsTheLockOfAProgramThatWasKilled(t *testing.T) {
	ctx := needAgent(t)
	holder, line := program(t, "orphan")
	command, err := strconv.Atoi(line)
	must(t, err)
	must(t, holder.Process.Kill())
	_ = holder.Wait()
	expect(t, try(ctx, "/orphan"), ErrNotAcquired)
	must(t, syscall.Kill(command, syscall.SIGKILL))
	guard, err := Lock(ctx, "/orphan")
	must(t, err)
	must(t, guard.Release(ctx))
}

func TestReadersShareAndSlotsAreCounted(t *testing.T) {
	ctx := needAgent(t)
	for _, shared := range []struct {
		path          string
		option, other Option
	}{{"/table", Mode(ModeRead), Mode(ModeWrite)}, {"/pool", Slots(2), Slots(2)}} {
		first, err := Lock(ctx, shared.path, shared.option)
		must(t, err)
		second, err := Lock(ctx, shared.path, shared.option)
		must(t, err)
		expect(t, try(ctx, shared.path, shared.other), ErrNotAcquired)
		must(t, first.Release(ctx))
		must(t, second.Release(ctx))
		must(t, try(ctx, shared.path, shared.other))
	}
}

func TestOneLeadsAtATimeAndTermsRise(t *testing.T) {
	ctx := needAgent(t)
	for term := uint64(1); term < 3; term++ {
		leader, err := Elect(ctx, "/main", Data([]byte("a:1")))
		must(t, err)
		equal(t, leader.Term, term)
		_, err = Elect(ctx, "/main", Wait(0))
		expect(t, err, ErrNotAcquired)
		must(t, leader.Release(ctx))
	}
}

func TestALockOutlivesTheProgramThatHoldsItUntilItsTokenReleasesIt(t *testing.T) {
	ctx := needAgent(t)
	token, err := Default.Hold(ctx, "/release", 10*time.Minute, Name("build"))
	must(t, err)
	equal(t, expect(t, try(ctx, "/release"), ErrNotAcquired).HeldBy, "build")
	again, err := Default.Hold(ctx, "/release", 10*time.Minute, Token(token))
	must(t, err)
	equal(t, again, token)
	isCurrent, err := Default.TokenIsCurrent(ctx, "/release", token)
	must(t, err)
	equal(t, isCurrent, true)
	_, err = Default.Hold(ctx, "/release", time.Minute, Wait(0))
	expect(t, err, ErrNotAcquired)
	expect(t, Default.ReleaseHold(ctx, "/release", token+1), ErrLost)
	must(t, Default.ReleaseHold(ctx, "/release", token))
	must(t, try(ctx, "/release"))
}

func TestAnItemComesBackUntilItIsAcknowledged(t *testing.T) {
	ctx := needAgent(t)
	jobs := Default.Queue("/jobs")
	_, err := jobs.Put(ctx, []byte("\xff\x00"), Priority(1), MaxAttempts(5))
	must(t, err)
	for step, attempt := range []int{1, 2, 2} {
		item, err := jobs.Take(ctx, Visibility(30*time.Second), Name("worker"))
		must(t, err)
		equal(t, string(item.Data), "\xff\x00")
		equal(t, item.Attempt, attempt)
		must(t, item.Check())
		must(t, item.Extend(ctx))
		switch step {
		case 0:
			must(t, item.Nack(ctx, "again", 0))
		case 1:
			item.link.close() // Its end is not an attempt: nobody says that the work has failed.
			<-item.done
		case 2:
			must(t, item.Ack(ctx))
			must(t, item.Ack(ctx))
		}
		expect(t, item.Check(), ErrLost)
	}
	_, err = jobs.Take(ctx, Wait(0))
	expect(t, err, ErrNotAcquired)
}

func TestMembersAreThereUntilTheyLeave(t *testing.T) {
	ctx := needAgent(t)
	step, lists := 0, [][]string{{}, {"a x:1"}, {}}
	var member *Membership
	Default.Members(ctx, "/workers")(func(members []Member, err error) bool {
		must(t, err)
		found := []string{}
		for _, it := range members {
			found = append(found, it.ID+" "+it.Data)
		}
		equal(t, strings.Join(found, ","), strings.Join(lists[step], ","))
		switch step {
		case 0:
			member, err = Default.Join(ctx, "/workers", "a", Data([]byte("x:1")))
			must(t, err)
		case 1:
			must(t, member.Check())
			must(t, member.Leave())
		}
		step++
		return step < len(lists)
	})
	equal(t, step, len(lists))
}

func TestACounterAddsAndShows(t *testing.T) {
	ctx := needAgent(t)
	hits := Default.Counter("/hits")
	for _, step := range [][2]int64{{1, 1}, {41, 42}, {-2, 40}} {
		value, err := hits.Add(ctx, step[0])
		must(t, err)
		equal(t, value, step[1])
	}
	value, err := hits.Get(ctx)
	must(t, err)
	equal(t, value, 40)
}

func TestEachBadInputIsRefusedByName(t *testing.T) {
	ctx := needAgent(t)
	locked := func(path string, options ...Option) error {
		_, err := Lock(ctx, path, options...)
		return err
	}
	second := func(_ any, err error) error { return err }
	for number, err := range []error{
		locked("deploy"), locked("/"), locked(""), locked("/a/../b"), locked("//a"),
		locked("/a\x00b"), locked("/a\xff"), locked("/a", Wait(-1)),
		locked("/a", SessionTimeout(-1)), locked("/a", Mode("both")), locked("/a", Slots(0)),
		locked("/a", Slots(2), Mode(ModeRead)), locked("/a", Priority(1)),
		locked("/a", Mode(ModeRead), LockDelay(time.Second)),
		second(Default.Hold(ctx, "/a", 0)), second(Default.Hold(ctx, "/a", 1e6*time.Hour)),
		second(Default.Queue("/jobs").Put(ctx, make([]byte, 3<<20))),
		second(Default.Join(ctx, "/workers", "a/b")),
		second(Default.Locks(ctx, "a")), second(Default.Counter("x").Get(ctx)),
	} {
		if !errors.Is(err, ErrRefused) {
			t.Fatal(number, err)
		}
	}
}

func TestNamesOfAnyCharactersAreOneLock(t *testing.T) {
	ctx, path := needAgent(t), "/a b%2F?#ü+"
	guard, err := Lock(ctx, path)
	must(t, err)
	program, err := os.ReadFile("/proc/self/comm")
	must(t, err)
	equal(t, expect(t, try(ctx, path), ErrNotAcquired).HeldBy, strings.TrimSpace(string(program)))
	isCurrent, err := Default.TokenIsCurrent(ctx, path, guard.Token)
	must(t, err)
	equal(t, isCurrent, true)
	must(t, guard.Release(ctx))
}

func TestTheEndOfTheAgentEndsGuardsAndWaits(t *testing.T) {
	ctx := needAgent(t)
	own, err := startAgent()
	must(t, err)
	t.Cleanup(own.stop)
	agent := New(own.socket())
	guard, err := agent.Lock(ctx, "/deploy")
	must(t, err)
	waits, result := make(chan bool, 9), make(chan error, 1)
	go func() {
		_, err := agent.Lock(ctx, "/deploy", OnWait(func(int, string) { waits <- true }))
		result <- err
	}()
	<-waits
	must(t, own.cmd.Process.Kill())
	<-guard.Context().Done()
	expect(t, guard.Check(), ErrLost)
	expect(t, <-result, ErrUnavailable)
	_, err = agent.Lock(ctx, "/deploy")
	if since := expect(t, err, ErrUnavailable).Since; time.Since(since) < 0 {
		t.Fatal(since)
	}
	_, err = New("/nonexistent/socket").Health(ctx)
	expect(t, err, ErrUnavailable)
}
