// Command go-zookeeper-peer measures a lock and its release by go-zookeeper, without others:
// SERVER PATH SECONDS. It prints one JSON object.
package main

import (
	"fmt"
	"io"
	"log"
	"os"
	"sort"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	seconds, err := strconv.ParseFloat(os.Args[3], 64)
	must(err)
	quiet := zk.WithLogger(log.New(io.Discard, "", 0))
	session, _, err := zk.Connect([]string{os.Args[1]}, 30*time.Second, quiet)
	must(err)
	defer session.Close()
	lock := zk.NewLock(session, os.Args[2], zk.WorldACL(zk.PermAll))
	var times []float64
	for end := time.Now().Add(time.Duration(seconds * float64(time.Second))); time.Now().Before(end); {
		begin := time.Now()
		must(lock.Lock())
		must(lock.Unlock())
		times = append(times, float64(time.Since(begin).Nanoseconds())/1000)
	}
	sort.Float64s(times)
	at := func(share float64) float64 { return times[int(float64(len(times)-1)*share)] }
	fmt.Printf("{\"p50_us\":%.1f,\"p99_us\":%.1f}\n", at(0.5), at(0.99))
}
