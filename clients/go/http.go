package baton

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// callLimit is the longest wait for an answer, beyond what the caller wants to wait.
	callLimit = time.Minute
	// forever is the longest time, in nanoseconds.
	forever = 1<<63 - 1
	// idleLimit is the longest that a connection is kept; the agent ends it after a minute.
	idleLimit = 30 * time.Second
	// maxIdle is the most connections to one agent that are kept.
	maxIdle = 8
	// maxMessage is the most bytes of one object of an answer.
	maxMessage = 16 << 20
)

// message is an object of the agent: an answer, or one event of several.
type message struct {
	Event, Reason      string
	Guard, Claim, Item string
	Code, Thing, Cause string
	NextStep           string `json:"next_step"`
	Token, Term        uint64
	LeaseUntilNS       int64  `json:"lease_until_ns"`
	NowNS              int64  `json:"now_ns"`
	BootID             string `json:"boot_id"`
	Place, Attempt     int
	HeldBy             string `json:"held_by"`
	Data               []byte `json:"data_base64"`
	Members            []Member
	Value              int64
	Current            bool
	Holders, Waiters   []LockNode
	UnavailableForMS   *int64 `json:"unavailable_for_ms"`
	raw                json.RawMessage
}

// call is a request. It carries the error of its parameters to where it would be sent.
type call struct {
	method, url, path string
	fields            map[string]any
	limit             time.Duration
	onWait            func(place int, heldBy string)
	err               error
}

// pathEscapes makes what is escaped for a query right in a path too.
var pathEscapes = strings.NewReplacer("%2F", "/", "+", "%20")

func newCall(method, kind, path, rest string, options ...Option) *call {
	url := "/v1/" + kind + pathEscapes.Replace(url.QueryEscape(path)) + rest
	c := &call{method, url, path, map[string]any{}, callLimit, nil, nil}
	if !strings.HasPrefix(path, "/") || path == "/" {
		c.err = newError(ErrRefused, fmt.Sprintf("%q", path), "not a znode path", "give one like /deploy")
	}
	for _, option := range options {
		option(c)
	}
	return c
}

// newWait returns a request that waits as long as its context lasts, unless there is a [Wait].
func newWait(method, kind, path, rest string, options []Option) *call {
	unlimited := func(c *call) { c.limit = forever }
	return newCall(method, kind, path, rest, append([]Option{unlimited}, options...)...)
}

func healthCall(d time.Duration) *call { return &call{method: "GET", url: "/v1/health", limit: d} }

// dial connects to the agent. Where neither this user's nor the machine's listens, it starts this
// user's, which ends when nobody uses it.
func (a *Agent) dial(ctx context.Context) (*link, error) {
	if a.path != "" {
		return connect(ctx, a.path)
	}
	own, machine := "/run/baton/agent.sock", "/run/baton/agent.sock"
	if folder := os.Getenv("XDG_RUNTIME_DIR"); folder != "" && os.Geteuid() != 0 {
		own = filepath.Join(folder, "baton", "agent.sock")
	}
	for _, path := range []string{own, machine} {
		// A dead agent's is still there, and one may be another's.
		if l, err := connect(ctx, path); err == nil {
			return l, nil
		}
	}
	// The error of the request says more than this one's.
	_ = exec.CommandContext(ctx, "baton", "agent", "--background").Run()
	return connect(ctx, own)
}

func connect(ctx context.Context, path string) (*link, error) {
	for l := takeIdle(path); l != nil; l = takeIdle(path) {
		if time.Since(l.idleSince) < idleLimit && isQuiet(l.conn) {
			return l, nil
		}
		l.close()
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, silent(ctx, path, err)
	}
	l := &link{agent: path, conn: conn.(*net.UnixConn), input: io.LimitedReader{R: conn}}
	l.reader = bufio.NewReader(&l.input)
	return l, nil
}

const noAnswer = "no answer of the agent: "

// silent returns the error of an agent that does not answer, or that of a context that is done.
func silent(ctx context.Context, agent string, cause error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	text, next := noAnswer+cause.Error(), "start it: baton agent"
	return &Error{ErrUnavailable, agent, text, next, "", time.Now()}
}

// link is a connection with one request at a time. It must be closed or given back.
type link struct {
	agent  string
	conn   *net.UnixConn
	input  io.LimitedReader
	reader *bufio.Reader
	// response has no status before it has come. Close: no other request may follow it.
	response *http.Response
	answers  *json.Decoder
	// isOpen: the body of the request lasts on.
	isOpen    bool
	idleSince time.Time
}

var idle = struct {
	sync.Mutex
	links map[string][]*link
}{links: map[string][]*link{}}

func takeIdle(agent string) (l *link) {
	idle.Lock()
	defer idle.Unlock()
	if links := idle.links[agent]; len(links) > 0 {
		l = links[len(links)-1]
		idle.links[agent] = links[:len(links)-1]
	}
	return l
}

// giveBack keeps the connection for another request, if the answer to this one ends.
func (l *link) giveBack() {
	l.endBody()
	_ = l.conn.SetReadDeadline(time.Now().Add(time.Second)) // Where it fails, so does the read.
	_, err := io.Copy(io.Discard, l.response.Body)
	isOver := err == nil && l.reader.Buffered() == 0 && !l.response.Close
	idle.Lock()
	defer idle.Unlock()
	if links := idle.links[l.agent]; isOver && len(links) < maxIdle {
		l.idleSince = time.Now()
		idle.links[l.agent] = append(links, l)
	} else {
		l.close()
	}
}

// begin sends a request, and waits for its answer or its first event after those of the wait.
func (a *Agent) begin(ctx context.Context, c *call) (*link, *message, error) {
	if c.err != nil {
		return nil, new(message), c.err
	}
	l, err := a.dial(ctx)
	if err != nil {
		return nil, new(message), err
	}
	l.response = &http.Response{Close: true, Body: http.NoBody}
	body, _ := json.Marshal(c.fields) // No option gives a value that JSON does not have.
	framing := fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	if l.isOpen = c.method == "PUT"; l.isOpen {
		framing = fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\n\r\n", len(body)+1, body)
	}
	// An error of the write is no end: the agent may have answered before it has read all.
	_, _ = fmt.Fprintf(l.conn, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s", c.method, c.url, framing)
	answer, err := l.receive(ctx, c.limit)
	for err == nil && answer.Event == "waiting" {
		if c.onWait != nil {
			c.onWait(answer.Place, answer.HeldBy)
		}
		answer, err = l.receive(ctx, c.limit)
	}
	if err != nil {
		l.giveBack()
	}
	return l, answer, err
}

// endBody ends the body of the request, and so what it holds. Where it fails, so does the read.
func (l *link) endBody() {
	if l.isOpen {
		_, _ = io.WriteString(l.conn, "0\r\n\r\n")
	}
	l.isOpen = false
}

func (l *link) close() { _ = l.conn.Close() }

// kinds are the errors of the agent's codes; any other code is [ErrRefused].
var kinds = map[string]error{"not_acquired": ErrNotAcquired, "unavailable": ErrUnavailable,
	"lost": ErrLost, "unknown": ErrUnknown}

// receive waits for an object. Returns the error that the agent names, or that it is silent, or
// that of the context, whose end closes the connection. An answer that does not come is an event
// "error" too.
func (l *link) receive(ctx context.Context, limit time.Duration) (*message, error) {
	found := new(message)
	stop := context.AfterFunc(ctx, l.close)
	err := l.decode(found, limit)
	if !stop() {
		l.response.Close = true
		err = ctx.Err()
	}
	status := l.response.StatusCode
	if status >= http.StatusBadRequest && found.Thing == "" {
		found.Thing = fmt.Sprintf("HTTP status %d", status)
	} else if err != nil {
		found.Event, found.Cause = "error", noAnswer+err.Error()
		return found, silent(ctx, l.agent, err)
	}
	if status < http.StatusBadRequest && found.Event != "error" {
		return found, nil
	}
	kind := kinds[found.Code]
	if strings.HasPrefix(found.Thing, "guard ") {
		// An agent does not remember what has ended: a guard that it does not know is a lost one.
		kind = ErrLost
	} else if kind == nil {
		kind = ErrRefused
	}
	if status == http.StatusMethodNotAllowed {
		found.NextStep = "upgrade the agent, which is older than this client"
	}
	e := &Error{kind, found.Thing, found.Cause, found.NextStep, found.HeldBy, time.Time{}}
	if found.UnavailableForMS != nil {
		e.Since = time.Now().Add(-time.Duration(*found.UnavailableForMS) * time.Millisecond)
	}
	return found, e
}

func (l *link) decode(found *message, limit time.Duration) error {
	_ = l.conn.SetReadDeadline(time.Now().Add(limit)) // Where it fails, so does the read.
	l.input.N = maxMessage
	if l.response.StatusCode == 0 {
		response, err := http.ReadResponse(l.reader, nil)
		if err != nil {
			return err
		}
		l.response, l.answers = response, json.NewDecoder(response.Body)
	}
	if err := l.answers.Decode(&found.raw); err != nil {
		return err
	}
	return json.Unmarshal(found.raw, found)
}

// ask sends a request and returns its answer, which is never nil.
func (a *Agent) ask(ctx context.Context, c *call) (*message, error) {
	l, answer, err := a.begin(ctx, c)
	if err == nil {
		l.giveBack()
	} else if answer.Event == "error" && c.method != "GET" {
		err = newError(ErrUnknown, c.method+" "+c.url, answer.Cause, readFirst)
	}
	return answer, err
}
