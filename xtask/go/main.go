// Measures a lock, an election or a queue of etcd (its own recipes), or a lock (SET NX, released by
// a script) or a list of Redis: cycles a second, over all clients. One client measures the
// uncontended lock; several contend, and then every grant is a hand-off. Prints one JSON object.
// With `ycsb` for its first argument it measures other loads of etcd: see ycsb.go.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	etcd "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipes "go.etcd.io/etcd/client/v3/experimental/recipes"
)

// Lease of a lock, as the peers' sessions have it.
const lease = 30 * time.Second

// A Redis client polls: nothing tells it of a release.
const poll = time.Millisecond

var item = strings.Repeat("v", 100)

type step func(context.Context) error

// A cycle is repeated; it returns how long it took.
type cycle func(context.Context) (time.Duration, error)

// timed is the cycle of these steps.
func timed(steps ...step) cycle {
	return func(ctx context.Context) (time.Duration, error) {
		begun := time.Now()
		for _, step := range steps {
			if err := step(ctx); err != nil {
				return 0, err
			}
		}
		return time.Since(begun), nil
	}
}

type redisMutex struct {
	client *redis.Client
	owner  string
}

var release = redis.NewScript(
	`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`)

func (m redisMutex) Lock(ctx context.Context) error {
	for {
		locked, err := m.client.SetNX(ctx, "lock", m.owner, lease).Result()
		if locked || err != nil {
			return err
		}
		time.Sleep(poll)
	}
}

func (m redisMutex) Unlock(ctx context.Context) error {
	released, err := release.Run(ctx, m.client, []string{"lock"}, m.owner).Int()
	if err == nil && released != 1 {
		return fmt.Errorf("the lock was lost")
	}
	return err
}

func connect(server, recipe, address string, number int) (cycle, error) {
	if server == "redis" {
		return ofRedis(recipe, address, number)
	}
	return ofEtcd(recipe, address)
}

func ofRedis(recipe, address string, number int) (cycle, error) {
	client := redis.NewClient(&redis.Options{Addr: address})
	switch recipe {
	case "lock", "handoff":
		mutex := redisMutex{client, strconv.Itoa(number)}
		return timed(mutex.Lock, mutex.Unlock), nil
	case "queue":
		return timed(
			func(ctx context.Context) error { return client.LPush(ctx, "queue", item).Err() },
			func(ctx context.Context) error { return client.BRPop(ctx, 0, "queue").Err() },
		), nil
	}
	return nil, fmt.Errorf("Redis has no %s", recipe)
}

// When the last leader began to resign, since `start`.
var resigned atomic.Int64
var start = time.Now()

// elect leads and resigns at once. It takes from the last leader's resignation to being elected.
func elect(election *concurrency.Election) cycle {
	return func(ctx context.Context) (time.Duration, error) {
		if err := election.Campaign(ctx, "candidate"); err != nil {
			return 0, err
		}
		elected := time.Since(start)
		took := elected - time.Duration(resigned.Swap(int64(elected)))
		return took, election.Resign(ctx)
	}
}

func ofEtcd(recipe, address string) (cycle, error) {
	client, err := etcd.New(etcd.Config{Endpoints: []string{address}, DialTimeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	session, err := concurrency.NewSession(client, concurrency.WithTTL(int(lease.Seconds())))
	if err != nil {
		return nil, err
	}
	switch recipe {
	case "lock", "handoff":
		mutex := concurrency.NewMutex(session, "/lock")
		return timed(mutex.Lock, mutex.Unlock), nil
	case "election":
		return elect(concurrency.NewElection(session, "/election")), nil
	case "queue":
		queue := recipes.NewQueue(client, "/queue")
		return timed(
			func(context.Context) error { return queue.Enqueue(item) },
			func(context.Context) error { _, err := queue.Dequeue(); return err },
		), nil
	}
	return nil, fmt.Errorf("etcd has no %s", recipe)
}

func number(at int) int {
	value, err := strconv.Atoi(os.Args[at])
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// sorted returns the measured times in order; there is at least one.
func sorted(took []time.Duration) []time.Duration {
	if len(took) == 0 {
		log.Fatal("nothing was done within the time")
	}
	slices.Sort(took)
	return took
}

// micros is the quantile of sorted times in microseconds.
func micros(took []time.Duration, percent int) float64 {
	return float64(took[len(took)*percent/100].Nanoseconds()) / 1e3
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "ycsb" {
		ycsb()
		return
	}
	if len(os.Args) != 7 {
		log.Fatal("usage: etcd|redis RECIPE ADDRESS CLIENTS WARM_UP_SECONDS SECONDS")
	}
	recipe, address := os.Args[2], os.Args[3]
	from := time.Now().Add(time.Duration(number(5)) * time.Second)
	until := from.Add(time.Duration(number(6)) * time.Second)
	var all []time.Duration
	var lock sync.Mutex
	var group sync.WaitGroup
	for client := range number(4) {
		cycle, err := connect(os.Args[1], recipe, address, client)
		if err != nil {
			log.Fatal(err)
		}
		group.Go(func() {
			var took []time.Duration
			for begun := time.Now(); begun.Before(until); begun = time.Now() {
				one, err := cycle(context.Background())
				if err != nil {
					log.Fatal(err)
				}
				if begun.After(from) && time.Now().Before(until) {
					took = append(took, one)
				}
			}
			lock.Lock()
			defer lock.Unlock()
			all = append(all, took...)
		})
	}
	group.Wait()
	all = sorted(all)
	json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"ops_per_second": float64(len(all)) / until.Sub(from).Seconds(),
		"p50_us":         micros(all, 50),
		"p99_us":         micros(all, 99),
	})
}
