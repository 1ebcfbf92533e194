package baton_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	baton "github.com/baton-locks/baton/clients/go"
)

func deploy(ctx context.Context) error {
	guard, err := baton.Lock(ctx, "/deploy") // starts an agent where none runs
	if err != nil {
		return err
	}
	defer guard.Release(ctx)
	if err := guard.Check(); err != nil { // baton.ErrLost once the lock is held no longer
		return err
	}
	fmt.Println("deploying with token", guard.Token)
	return nil
}

func deployWithContext(ctx context.Context) error {
	guard, err := baton.Lock(ctx, "/deploy", baton.Wait(30*time.Second), baton.Name("build 7"))
	if errors.Is(err, baton.ErrNotAcquired) {
		return nil
	} else if err != nil {
		return err
	}
	defer guard.Release(ctx)
	if err := work(guard.Context()); err != nil { // cancelled when the lock is lost
		return err
	}
	command := exec.Command("sh", "-c", "true")
	if err := guard.Run(command); err != nil { // killed when the lock is lost
		return err
	}
	write := baton.Op{Op: "create", Path: "/deployed", Data: []byte("1")}
	return guard.Txn(ctx, write) // applies only while the lock is held
}

func work(ctx context.Context) error { return ctx.Err() }

func others(ctx context.Context) error {
	agent := baton.Default
	term, err := agent.Elect(ctx, "/main", baton.Data([]byte("10.0.0.1:80")))
	if err != nil {
		return err
	}
	fmt.Println("leads term", term.Term)
	defer term.Release(ctx)

	jobs := agent.Queue("/go-jobs")
	if _, err := jobs.Put(ctx, []byte("resize 7"), baton.MaxAttempts(5)); err != nil {
		return err
	}
	item, err := jobs.Take(ctx)
	if err != nil {
		return err
	}
	if err := item.Ack(ctx); err != nil { // without it the item goes to the next consumer
		return err
	}

	member, err := agent.Join(ctx, "/go-workers", "a", baton.Data([]byte("10.0.0.1:80")))
	if err != nil {
		return err
	}
	defer member.Leave()
	agent.Members(ctx, "/go-workers")(func(members []baton.Member, err error) bool {
		return err == nil && len(members) == 0 // from Go 1.23 on: for members, err := range …
	})

	if _, err := agent.Counter("/go-hits").Add(ctx, 1); err != nil {
		return err
	}
	token, err := agent.Hold(ctx, "/go-release", 10*time.Minute) // outlives this program
	if err != nil {
		return err
	}
	return agent.ReleaseHold(ctx, "/go-release", token) // from another one
}

func TestTheExamplesRun(t *testing.T) {
	if os.Getenv("BATON") == "" {
		t.Skip("BATON names no command baton")
	}
	for _, example := range []func(context.Context) error{deploy, deployWithContext, others} {
		if err := example(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}
