// Command conformance carries out the commands of the conformance suite with the client for Go.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	baton "github.com/baton-locks/baton/clients/go"
)

type command struct {
	Do, ID, Path, Mode, Name, Data, Log string
	Wait, Timeout, TTL                  *int64
	Slots, Count                        int
	Delta                               int64
	Token                               uint64
}

type holding interface {
	Check() error
	Context() context.Context
}

var (
	agent *baton.Agent
	held  sync.Map
	turn  sync.Mutex
	ctx   = context.Background()
)

func say(event string, c command, fields map[string]any) {
	fields["event"], fields["id"] = event, c.ID
	line, _ := json.Marshal(fields)
	turn.Lock()
	defer turn.Unlock()
	_, _ = os.Stdout.Write(append(line, '\n'))
}

func keep(c command, found holding, fields map[string]any) {
	held.Store(c.ID, found)
	say("held", c, fields)
	context.AfterFunc(found.Context(), func() {
		if errors.Is(context.Cause(found.Context()), baton.ErrLost) {
			say("lost", c, map[string]any{})
		}
	})
}

func of[T any](c command) T {
	found, _ := held.Load(c.ID)
	return found.(T)
}

func ms(value *int64) time.Duration { return time.Duration(*value) * time.Millisecond }

func options(c command) []baton.Option {
	found := []baton.Option{baton.OnWait(func(place int, _ string) {
		say("waiting", c, map[string]any{"place": place})
	})}
	if c.Mode != "" {
		found = append(found, baton.Mode(c.Mode))
	}
	if c.Slots > 0 {
		found = append(found, baton.Slots(c.Slots))
	}
	if c.Name != "" {
		found = append(found, baton.Name(c.Name))
	}
	if c.Wait != nil {
		found = append(found, baton.Wait(ms(c.Wait)))
	}
	if c.Timeout != nil {
		found = append(found, baton.SessionTimeout(ms(c.Timeout)))
	}
	return found
}

func cycle(c command) error {
	file, err := os.OpenFile(c.Log, os.O_WRONLY|os.O_APPEND, 0)
	for number := 0; number < c.Count && err == nil; number++ {
		var guard *baton.Guard
		if guard, err = agent.Lock(ctx, c.Path); err != nil {
			return err
		}
		fmt.Fprintf(file, "begin go %d\n", guard.Token)
		if err = guard.Check(); err != nil {
			return err
		}
		fmt.Fprintf(file, "end go %d\n", guard.Token)
		err = guard.Release(ctx)
	}
	return err
}

// turns returns the nanoseconds of each lock and its release.
func turns(c command) (times []int64, err error) {
	for number := 0; number < c.Count && err == nil; number++ {
		begin := time.Now()
		var guard *baton.Guard
		if guard, err = agent.Lock(ctx, c.Path); err == nil {
			err = guard.Release(ctx)
		}
		times = append(times, time.Since(begin).Nanoseconds())
	}
	return times, err
}

// checks returns the nanoseconds of one check.
func checks(c command) (float64, error) {
	guard := of[*baton.Guard](c)
	begin := time.Now()
	for number := 0; number < c.Count; number++ {
		if err := guard.Check(); err != nil {
			return 0, err
		}
	}
	return float64(time.Since(begin).Nanoseconds()) / float64(c.Count), nil
}

// monotonic reads CLOCK_MONOTONIC, which is the same for all programs.
func monotonic() int64 {
	var now syscall.Timespec
	_, _, _ = syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}

// act adds its token and an instant at which the lock was held still.
func act(c command) error {
	file, err := os.OpenFile(c.Log, os.O_WRONLY|os.O_APPEND, 0)
	for guard := of[*baton.Guard](c); err == nil; time.Sleep(5 * time.Millisecond) {
		now := monotonic()
		if guard.Check() != nil {
			return nil
		}
		_, err = fmt.Fprintf(file, "go %d %d\n", guard.Token, now)
	}
	return err
}

func carryOut(c command) (err error) {
	var result any
	switch c.Do {
	case "lock", "elect":
		acquire := agent.Lock
		if c.Do == "elect" {
			acquire = agent.Elect
		}
		guard, err := acquire(ctx, c.Path, options(c)...)
		if err == nil {
			keep(c, guard, map[string]any{"guard": guard.ID, "token": guard.Token, "term": guard.Term})
		}
		return err
	case "take":
		item, err := agent.Queue(c.Path).Take(ctx, options(c)...)
		if err == nil {
			fields := map[string]any{"data": string(item.Data), "attempt": item.Attempt}
			keep(c, item, fields)
		}
		return err
	case "join":
		member, err := agent.Join(ctx, c.Path, c.Name)
		if err == nil {
			keep(c, member, map[string]any{})
		}
		return err
	case "check":
		say("check", c, map[string]any{"held": of[holding](c).Check() == nil})
		return nil
	case "release":
		err = of[*baton.Guard](c).Release(ctx)
	case "leave":
		err = of[*baton.Membership](c).Leave()
	case "create":
		op := baton.Op{Op: "create", Path: c.Path, Data: []byte(c.Data)}
		err = of[*baton.Guard](c).Txn(ctx, op)
	case "ack":
		err = of[*baton.Item](c).Ack(ctx)
	case "nack":
		err = of[*baton.Item](c).Nack(ctx, "again", 0)
	case "put":
		_, err = agent.Queue(c.Path).Put(ctx, []byte(c.Data))
	case "add":
		result, err = agent.Counter(c.Path).Add(ctx, c.Delta)
	case "hold":
		result, err = agent.Hold(ctx, c.Path, ms(c.TTL))
	case "release_hold":
		err = agent.ReleaseHold(ctx, c.Path, c.Token)
	case "current":
		result, err = agent.TokenIsCurrent(ctx, c.Path, c.Token)
	case "members":
		agent.Members(ctx, c.Path)(func(members []baton.Member, failed error) bool {
			ids := []string{}
			for _, member := range members {
				ids = append(ids, member.ID)
			}
			sort.Strings(ids)
			result, err = ids, failed
			return false
		})
	case "cycle":
		err = cycle(c)
	case "turns":
		result, err = turns(c)
	case "checks":
		result, err = checks(c)
	case "act":
		err = act(c)
	case "many":
		for number := 0; number < c.Count && err == nil; number++ {
			var guard *baton.Guard
			guard, err = agent.Lock(ctx, fmt.Sprintf("%s/%d", c.Path, number))
			held.Store(fmt.Sprint(c.ID, number), guard)
		}
	}
	if err == nil {
		say("done", c, map[string]any{"result": result})
	}
	return err
}

func main() {
	agent = baton.New(strings.Join(os.Args[1:], ""))
	kinds := map[error]string{baton.ErrNotAcquired: "NotAcquired", baton.ErrLost: "Lost",
		baton.ErrUnavailable: "Unavailable", baton.ErrUnknown: "Unknown", baton.ErrRefused: "Refused"}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			panic(err)
		}
		go func() {
			var e *baton.Error
			if err := carryOut(c); errors.As(err, &e) {
				say("error", c, map[string]any{"kind": kinds[e.Kind], "text": e.Error(),
					"held_by": e.HeldBy})
			} else if err != nil {
				panic(err)
			}
		}()
	}
}
