// Measures a lock of etcd (its own concurrency recipe) or of Redis (SET NX, released by a script):
// cycles of lock and unlock a second, over all clients. One client measures the uncontended lock;
// several contend, and then every grant is a hand-off. Prints one JSON object. With `ycsb` for its
// first argument it measures other loads of etcd: see ycsb.go.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	etcd "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// Lease of a lock, as the peers' sessions have it.
const lease = 30 * time.Second

// A Redis client polls: nothing tells it of a release.
const poll = time.Millisecond

type mutex interface {
	Lock(context.Context) error
	Unlock(context.Context) error
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

func connect(server, address string, client int) (mutex, error) {
	if server == "redis" {
		client := redisMutex{redis.NewClient(&redis.Options{Addr: address}), strconv.Itoa(client)}
		return client, nil
	}
	connection, err := etcd.New(etcd.Config{Endpoints: []string{address}, DialTimeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	session, err := concurrency.NewSession(connection, concurrency.WithTTL(int(lease.Seconds())))
	if err != nil {
		return nil, err
	}
	return concurrency.NewMutex(session, "/lock"), nil
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
	if len(os.Args) != 6 {
		log.Fatal("usage: locks etcd|redis ADDRESS CLIENTS WARM_UP_SECONDS SECONDS")
	}
	clients := number(3)
	from := time.Now().Add(time.Duration(number(4)) * time.Second)
	until := from.Add(time.Duration(number(5)) * time.Second)
	var all []time.Duration
	var lock sync.Mutex
	var group sync.WaitGroup
	for client := range clients {
		mutex, err := connect(os.Args[1], os.Args[2], client)
		if err != nil {
			log.Fatal(err)
		}
		group.Go(func() {
			var took []time.Duration
			for begun := time.Now(); begun.Before(until); begun = time.Now() {
				if err := mutex.Lock(context.Background()); err != nil {
					log.Fatal(err)
				}
				if err := mutex.Unlock(context.Background()); err != nil {
					log.Fatal(err)
				}
				if ended := time.Now(); begun.After(from) && ended.Before(until) {
					took = append(took, ended.Sub(begun))
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
