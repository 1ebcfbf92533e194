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
	forever   = 100 * 365 * 24 * time.Hour
	// idleLimit is the longest that a connection is kept; the agent ends it after a minute.
	idleLimit = 30 * time.Second
	// maxIdle is the most connections to one agent that are kept.
	maxIdle = 8
	// maxMessage is the most bytes of one object of an answer.
	maxMessage = 16 << 20
)

// message is an object of the agent: an answer, or one event of several.
type message struct {
	Event, Reason    string
	Thing, Cause     string
	Code, Guard      string
	Claim, Item      string
	NextStep         string `json:"next_step"`
	Token, Term      uint64
	LeaseUntilNS     int64  `json:"lease_until_ns"`
	NowNS            int64  `json:"now_ns"`
	BootID           string `json:"boot_id"`
	Place, Attempt   int
	HeldBy           string `json:"held_by"`
	Data             []byte `json:"data_base64"`
	Members          []Member
	Value            int64
	Current          bool
	Holders, Waiters []LockNode
	UnavailableForMS *int64 `json:"unavailable_for_ms"`
	raw              json.RawMessage
}

// call is a request. It carries the error of its parameters to where it would be sent.
type call struct {
	method, url, path string
	fields            map[string]any
	limit             time.Duration
	onWait            func(place int, heldBy string)
	err               error
}

func newCall(method, kind, path, rest string, options ...Option) *call {
	parts := strings.Split(path, "/")
	for at, part := range parts {
		parts[at] = strings.ReplaceAll(url.QueryEscape(part), "+", "%20")
	}
	url := "/v1/" + kind + strings.Join(parts, "/") + rest
	c := &call{method, url, path, map[string]any{}, callLimit, nil, nil}
	if !strings.HasPrefix(path, "/") || path == "/" {
		c.err = refused(fmt.Sprintf("%q", path), "not a znode path", "give one like /deploy")
	}
	for _, option := range options {
		option(c)
	}
	return c
}

func healthCall() *call { return &call{method: "GET", url: "/v1/health", limit: callLimit} }

// dial connects to the agent. Where neither this user's nor the machine's listens, it starts this
// user's, which ends when nobody uses it.
func (a *Agent) dial(ctx context.Context) (*link, error) {
	connect := func(path string) (*link, error) {
		if l := takeIdle(path); l != nil {
			return l, nil
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if err != nil {
			return nil, silent(path, err)
		}
		l := &link{agent: path, conn: conn.(*net.UnixConn), input: io.LimitedReader{R: conn}}
		l.reader = bufio.NewReader(&l.input)
		return l, nil
	}
	if a.path != "" {
		return connect(a.path)
	}
	own, machine := "/run/baton/agent.sock", "/run/baton/agent.sock"
	if folder := os.Getenv("XDG_RUNTIME_DIR"); folder != "" && os.Geteuid() != 0 {
		own = filepath.Join(folder, "baton", "agent.sock")
	}
	for _, path := range []string{own, machine} {
		// A dead agent's is still there, and one may be another's.
		if l, err := connect(path); err == nil {
			return l, nil
		}
	}
	// The error of the request says more than this one's.
	_ = exec.CommandContext(ctx, "baton", "agent", "--background").Run()
	return connect(own)
}

// link is a connection with one request at a time. It must be closed or given back.
type link struct {
	agent   string
	conn    *net.UnixConn
	input   io.LimitedReader
	reader  *bufio.Reader
	body    io.Reader
	answers *json.Decoder
	status  int
	// isOpen: the body of the request lasts on. isLast: no other request may follow.
	isOpen, isLast bool
	idleSince      time.Time
}

var idle = struct {
	sync.Mutex
	links map[string][]*link
}{links: map[string][]*link{}}

func takeIdle(agent string) *link {
	idle.Lock()
	defer idle.Unlock()
	for links := idle.links[agent]; len(links) > 0; {
		l := links[len(links)-1]
		links = links[:len(links)-1]
		idle.links[agent] = links
		if time.Since(l.idleSince) < idleLimit && isQuiet(l.conn) {
			return l
		}
		l.close()
	}
	return nil
}

// giveBack keeps the connection for another request, if the answer to this one ends.
func (l *link) giveBack() {
	if l.answers == nil || l.isLast || l.endBody() != nil {
		l.close()
		return
	}
	_ = l.conn.SetReadDeadline(time.Now().Add(time.Second)) // Where it fails, so does the read.
	if _, err := io.Copy(io.Discard, l.body); err != nil || l.reader.Buffered() > 0 {
		l.close()
		return
	}
	_ = l.conn.SetReadDeadline(time.Time{})
	l.answers, l.status, l.idleSince = nil, 0, time.Now()
	idle.Lock()
	defer idle.Unlock()
	if links := idle.links[l.agent]; len(links) < maxIdle {
		idle.links[l.agent] = append(links, l)
	} else {
		l.close()
	}
}

func (a *Agent) open(ctx context.Context, c *call) (*link, error) {
	if c.err != nil {
		return nil, c.err
	}
	l, err := a.dial(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	} else if err != nil {
		return nil, err
	}
	body, _ := json.Marshal(c.fields) // No option gives a value that JSON does not have.
	framing := fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	if l.isOpen = c.method == "PUT"; l.isOpen {
		framing = fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\n\r\n", len(body)+1, body)
	}
	// An error of the write is no end: the agent may have answered before it has read all.
	_, _ = fmt.Fprintf(l.conn, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s", c.method, c.url, framing)
	return l, nil
}

// endBody ends the body of the request, and so what it holds.
func (l *link) endBody() (err error) {
	if l.isOpen {
		_, err = io.WriteString(l.conn, "0\r\n\r\n")
	}
	l.isOpen = false
	return err
}

func (l *link) close() { _ = l.conn.Close() }

// receive waits for an object. Returns the error that the agent names, or that it is silent.
func (l *link) receive(limit time.Duration) (*message, error) {
	found := new(message)
	err := l.decode(found, limit)
	if l.status >= 400 && found.Thing == "" {
		found.Thing = fmt.Sprintf("HTTP status %d", l.status)
	} else if err != nil {
		return found, silent(l.agent, err)
	}
	if l.status < 400 && found.Event != "error" {
		return found, nil
	}
	kinds := map[string]error{"not_acquired": ErrNotAcquired, "unavailable": ErrUnavailable,
		"lost": ErrLost, "unknown": ErrUnknown}
	kind := kinds[found.Code]
	if strings.HasPrefix(found.Thing, "guard ") {
		// An agent does not remember what has ended: a guard that it does not know is a lost one.
		kind = ErrLost
	} else if kind == nil {
		kind = ErrRefused
	}
	if l.status == http.StatusMethodNotAllowed {
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
	if l.answers == nil {
		response, err := http.ReadResponse(l.reader, nil)
		if err != nil {
			return err
		}
		l.status, l.body, l.isLast = response.StatusCode, response.Body, response.Close
		l.answers = json.NewDecoder(l.body)
	}
	if err := l.answers.Decode(&found.raw); err != nil {
		return err
	}
	return json.Unmarshal(found.raw, found)
}

// ask sends a request and returns its answer, and an empty one with an error.
func (a *Agent) ask(ctx context.Context, c *call) (*message, error) {
	l, err := a.open(ctx, c)
	if err != nil {
		return new(message), err
	}
	stop := context.AfterFunc(ctx, l.close)
	answer, err := l.receive(c.limit)
	if stop() {
		defer l.giveBack()
	}
	if err == nil {
		return answer, nil
	}
	if l.status < 400 && c.method != "GET" {
		thing, next := c.method+" "+c.url, "read before you repeat it"
		err = &Error{Kind: ErrUnknown, Thing: thing, Cause: err.(*Error).Cause, NextStep: next}
	} else if ctx.Err() != nil {
		err = ctx.Err()
	}
	return new(message), err
}
