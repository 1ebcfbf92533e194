package baton

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// patience is the longest that a test waits for what must come.
const patience = time.Minute

// process is an agent with a server of its own.
type process struct {
	folder string
	cmd    *exec.Cmd
}

// startAgent starts an agent of the command that BATON names.
func startAgent() (*process, error) {
	folder, err := os.MkdirTemp("", "baton")
	if err != nil {
		return nil, err
	}
	p := &process{folder: folder}
	data := filepath.Join(folder, "data")
	p.cmd = exec.Command(os.Getenv("BATON"), "--data-dir", data, "agent", "--socket", p.socket())
	p.cmd.Stderr = os.Stderr
	output, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err == nil {
		// It prints one line once it listens.
		_, err = bufio.NewReader(output).ReadString('\n')
	}
	return p, err
}

func (p *process) socket() string { return filepath.Join(p.folder, "agent.sock") }

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
	// The agent has started a server of this folder, whose number is in its file.
	lock, _ := os.ReadFile(filepath.Join(p.folder, "data", "LOCK"))
	if fields := strings.Fields(string(lock)); len(fields) > 0 {
		if pid, err := strconv.Atoi(fields[0]); err == nil {
			_ = syscall.Kill(pid, syscall.SIGTERM)
		}
	}
	_ = os.RemoveAll(p.folder)
}

func TestMain(m *testing.M) {
	if role := os.Getenv("BATON_TEST_ROLE"); role != "" {
		os.Exit(play(role))
	}
	if os.Getenv("BATON") == "" {
		fmt.Fprintln(os.Stderr, "NOT CHECKED: tests with an agent: BATON names no command baton")
		os.Exit(m.Run())
	}
	agent, err := startAgent()
	if err != nil {
		panic(err)
	}
	Default = New(agent.socket())
	code := m.Run()
	agent.stop()
	os.Exit(code)
}

// needAgent returns a context that ends with the test's patience.
func needAgent(t *testing.T) context.Context {
	t.Helper()
	if os.Getenv("BATON") == "" {
		t.Skip("BATON names no command baton")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// play is the program that a test starts as another process.
func play(role string) int {
	ctx := context.Background()
	agent := New(os.Getenv("BATON_TEST_SOCKET"))
	guard, err := agent.Lock(ctx, "/"+role, SessionTimeout(40*time.Second))
	if err != nil {
		panic(err)
	}
	if role == "orphan" {
		cmd := exec.Command("sh", "-c", "echo $$; exec sleep 1000")
		cmd.Stdout = os.Stdout
		_ = guard.Run(cmd)
		return 0
	}
	fmt.Println(guard.Token)
	_, _ = os.Stdin.Read(make([]byte, 1))
	return 0
}

// program starts this test's executable in a role, and returns it with its first line.
func program(t *testing.T, role string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "BATON_TEST_ROLE="+role, "BATON_TEST_SOCKET="+Default.path)
	input, err := cmd.StdinPipe()
	must(t, err)
	output, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = input.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	must(t, err)
	return cmd, strings.TrimSpace(line)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, err, kind error) *Error {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("%v, not %v", err, kind)
	}
	var e *Error
	if errors.As(err, &e) && (e.Thing == "" || e.Error() == "") {
		t.Fatalf("%v names nothing", e)
	}
	return e
}

func equal[T comparable](t *testing.T, found, expected T) {
	t.Helper()
	if found != expected {
		t.Fatalf("%v, not %v", found, expected)
	}
}

func try(ctx context.Context, path string, options ...Option) error {
	guard, err := Lock(ctx, path, append(options, Wait(0))...)
	if err == nil {
		_ = guard.Release(ctx)
	}
	return err
}

// endFromOutside ends a guard so that its holder knows nothing before a message comes.
func endFromOutside(t *testing.T, ctx context.Context, guard *Guard) {
	t.Helper()
	answer, err := Default.ask(ctx, guard.call("release"))
	must(t, err)
	equal(t, answer.Event, "released")
}

// scripted is an agent that answers one request a connection with what `answer` sends.
func scripted(t *testing.T, answer func(url string, send func(string))) *Agent {
	t.Helper()
	agent, _ := keeping(t, func(request *http.Request, send func(string)) bool {
		answer(request.URL.Path, send)
		return false
	})
	return agent
}

// keeping is an agent that keeps a connection as long as `answer` says, and counts connections.
func keeping(t *testing.T, answer func(request *http.Request, send func(string)) bool,
) (*Agent, *atomic.Int64) {
	t.Helper()
	folder, err := os.MkdirTemp("", "baton")
	must(t, err)
	socket := filepath.Join(folder, "sock")
	listener, err := net.Listen("unix", socket)
	must(t, err)
	t.Cleanup(func() {
		_ = listener.Close()
		_ = os.RemoveAll(folder)
	})
	count := new(atomic.Int64)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			count.Add(1)
			go func() {
				defer conn.Close()
				send := func(text string) { _, _ = conn.Write([]byte(text)) }
				for input := bufio.NewReader(conn); ; {
					request, err := http.ReadRequest(input)
					if err != nil || !answer(request, send) {
						return
					}
				}
			}()
		}
	}()
	return New(socket), count
}

// holding answers a request to hold with its grant, waits for the end of its body, calls `ending`,
// and ends the answer with an event.
func holding(request *http.Request, send func(string), ending func(), last string) {
	body := bufio.NewReader(request.Body)
	_, _ = body.ReadString('\n')
	now := readClocks().boot
	send(head + chunk(map[string]any{"event": "held", "guard": "g", "token": 1, "now_ns": now,
		"boot_id": clocks.bootID(), "lease_until_ns": now + int64(time.Hour)}))
	_, _ = io.Copy(io.Discard, body)
	ending()
	send(chunk(map[string]any{"event": last, "next_step": "ask again"}) + "0\r\n\r\n")
}
