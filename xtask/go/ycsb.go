package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	etcd "go.etcd.io/etcd/client/v3"
)

// Exponent of the law by which some keys are used more than others.
const exponent = 0.99

// zipf draws ranks from 0 by the method of Gray and others (SIGMOD 1994). The one of math/rand takes
// exponents above 1 only.
type zipf struct{ n, zeta, alpha, eta float64 }

func newZipf(n int) zipf {
	zeta := 0.0
	for rank := 1; rank <= n; rank++ {
		zeta += math.Pow(float64(rank), -exponent)
	}
	eta := (1 - math.Pow(2/float64(n), 1-exponent)) / (1 - (1+math.Pow(0.5, exponent))/zeta)
	return zipf{float64(n), zeta, 1 / (1 - exponent), eta}
}

func (z zipf) rank(random *rand.Rand) int {
	u := random.Float64()
	switch at := u * z.zeta; {
	case at < 1:
		return 0
	case at < 1+math.Pow(0.5, exponent):
		return 1
	}
	return int(z.n * math.Pow(z.eta*u-z.eta+1, z.alpha))
}

// lane is one request in flight after the other, as a slot of baton-bench is.
type lane struct {
	kv     etcd.KV
	number int
	lanes  int
	keys   int
	value  string
	hot    zipf
	random *rand.Rand
	turn   int
}

func shared(n int) string { return fmt.Sprintf("/ycsb/n%06d", n) }

func (l *lane) own(n int) string { return fmt.Sprintf("/ycsb/c%04d/n%010d", l.number, n) }

func (l *lane) put(key string) error {
	_, err := l.kv.Put(context.Background(), key, l.value)
	return err
}

func (l *lane) get(key string) error {
	// Answered by the server that is asked, as ZooKeeper's reads are.
	answer, err := l.kv.Get(context.Background(), key, etcd.WithSerializable())
	if err == nil && len(answer.Kvs) != 1 {
		return fmt.Errorf("%s is not there", key)
	}
	return err
}

// step makes the next request; false where all have been made.
func (l *lane) step(workload string) (bool, error) {
	turn := l.turn
	l.turn++
	switch workload {
	case "load":
		n := l.number + turn*l.lanes
		if n >= l.keys {
			return false, nil
		}
		return true, l.put(shared(n))
	case "latest":
		made := (turn + 19) / 20
		if turn%20 == 0 {
			return true, l.put(l.own(made))
		}
		return true, l.get(l.own(made - 1 - l.hot.rank(l.random)%made))
	}
	reads := map[string]int{"a": 50, "b": 95, "c": 100}[workload]
	key := shared(l.hot.rank(l.random) * 7919 % l.keys)
	if turn*reads%100 < reads {
		return true, l.get(key)
	}
	return true, l.put(key)
}

// cpu is the processor time of processes so far, in microseconds.
func cpu(pids string) (sum float64) {
	for _, pid := range strings.Split(pids, ",") {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			log.Fatal(err)
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		for _, field := range fields[11:13] {
			var ticks float64
			fmt.Sscan(field, &ticks)
			sum += ticks * 1e4
		}
	}
	return sum
}

// ycsb loads etcd as baton-bench loads a server of ZooKeeper's protocol, and reports likewise.
func ycsb() {
	if len(os.Args) != 11 {
		log.Fatal("usage: ycsb WORKLOAD ADDRESSES PIDS CLIENTS IN_FLIGHT KEYS BYTES WARM_UP_SECONDS SECONDS")
	}
	workload, addresses, pids := os.Args[2], strings.Split(os.Args[3], ","), os.Args[4]
	clients, inFlight, keys := number(5), number(6), number(7)
	value := strings.Repeat("v", number(8))
	hot := newZipf(keys)
	var lanes []*lane
	for client := range clients {
		address := addresses[client%len(addresses)]
		connection, err := etcd.New(etcd.Config{Endpoints: []string{address}, DialTimeout: 10 * time.Second})
		if err != nil {
			log.Fatal(err)
		}
		for range inFlight {
			number := len(lanes)
			random := rand.New(rand.NewPCG(uint64(number), 0))
			lanes = append(lanes, &lane{
				kv: connection, number: number, lanes: clients * inFlight, keys: keys, value: value,
				hot: hot, random: random,
			})
		}
	}
	var measuring, stopping atomic.Bool
	took := make([][]time.Duration, len(lanes))
	var group sync.WaitGroup
	for at, lane := range lanes {
		group.Go(func() {
			for !stopping.Load() {
				begun, counts := time.Now(), measuring.Load()
				goesOn, err := lane.step(workload)
				if err != nil {
					log.Fatal(err)
				}
				if !goesOn {
					return
				}
				if counts && measuring.Load() {
					took[at] = append(took[at], time.Since(begun))
				}
			}
		})
	}
	if workload != "load" {
		time.Sleep(time.Duration(number(9)) * time.Second)
	}
	before, begun := cpu(pids), time.Now()
	measuring.Store(true)
	if workload == "load" {
		group.Wait()
	} else {
		time.Sleep(time.Duration(number(10)) * time.Second)
	}
	length, used := time.Since(begun), cpu(pids)-before
	measuring.Store(false)
	stopping.Store(true)
	group.Wait()
	all := sorted(slices.Concat(took...))
	json.NewEncoder(os.Stdout).Encode(map[string]any{
		"ops_per_second": float64(len(all)) / length.Seconds(),
		"latency_us":     map[string]float64{"p50": micros(all, 50), "p99": micros(all, 99)},
		"server":         map[string]float64{"cpu_us_per_op": used / float64(len(all))},
	})
}
