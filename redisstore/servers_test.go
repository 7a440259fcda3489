package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// startTimeout is how long a server may take to do what is asked of it.
const startTimeout = 30 * time.Second

// server is a redis-server of this test's own.
type server struct {
	addr string
	dir  string
	args []string

	mu   sync.Mutex
	cmd  *exec.Cmd
	gone chan struct{} // closed when the process has ended
	out  *bytes.Buffer
}

// binary returns the path of redis-server. Without one the test is skipped, but
// not in CI, where it must not go unnoticed.
func binary(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err == nil {
		return path
	}
	if os.Getenv("CI") != "" {
		t.Fatal("redis-server is not in PATH, and CI is set: install it")
	}
	t.Skip("redis-server is not in PATH: this needs a real server")
	return ""
}

// startServer starts a redis-server on a free port, in a directory of its own,
// without persistence unless args say otherwise, and stops it with the test.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	s := &server{dir: t.TempDir(), args: append([]string{"--save", "", "--appendonly", "no"}, args...)}
	t.Cleanup(s.kill)
	// Another process may take the port between the look and the start.
	for range 5 {
		s.addr = freeAddr(t)
		if err := s.start(binary(t)); err == nil {
			return s
		}
	}
	t.Fatalf("redis-server does not start:\n%s", s.out)
	return nil
}

// freeAddr returns an address whose port, and the cluster's bus port that goes
// with it, are free just now.
func freeAddr(t testing.TB) string {
	t.Helper()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		port := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		bus, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+10000))
		if err != nil {
			continue // above 65535, or taken
		}
		_ = bus.Close()
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
}

func (s *server) port() string {
	_, port, _ := net.SplitHostPort(s.addr)
	return port
}

// start runs the process and waits until it answers.
func (s *server) start(path string) error {
	args := append([]string{"--port", s.port(), "--bind", "127.0.0.1", "--dir", s.dir}, s.args...)
	if len(s.args) > 0 && filepath.Ext(s.args[0]) == ".conf" { // a Sentinel reads a file first
		args = append([]string{s.args[0], "--port", s.port()}, s.args[1:]...)
	}
	s.mu.Lock()
	s.out = new(bytes.Buffer)
	s.cmd = exec.Command(path, args...)
	s.cmd.Stdout, s.cmd.Stderr = s.out, s.out
	s.gone = make(chan struct{})
	err := s.cmd.Start()
	cmd, gone := s.cmd, s.gone
	s.mu.Unlock()
	if err != nil {
		return err
	}
	go func() {
		_ = cmd.Wait()
		close(gone)
	}()
	client := redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1, DialTimeout: time.Second})
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		// Any answer of a server will do: it may still be loading, or ask for
		// a password.
		var answer redis.Error
		err := client.Ping(ctx).Err()
		if err == nil || errors.As(err, &answer) {
			return nil
		}
		select {
		case <-gone:
			return fmt.Errorf("redis-server has ended: %w", err)
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// kill ends the process with no chance to write anything, and waits for that.
func (s *server) kill() {
	s.mu.Lock()
	cmd, gone := s.cmd, s.gone
	s.mu.Unlock()
	if cmd == nil || cmd.Process == nil {
		return
	}
	_ = cmd.Process.Kill()
	<-gone
}

// restart starts the process again on the same port and directory.
func (s *server) restart(t testing.TB, args ...string) {
	t.Helper()
	s.kill()
	s.args = append(s.args, args...)
	require.NoError(t, s.start(binary(t)))
}

// client returns a client with go-redis's own settings where opt leaves them.
func (s *server) client(t testing.TB, change ...func(*redis.Options)) *redis.Client {
	t.Helper()
	return newClient(t, s.addr, change...)
}

func newClient(t testing.TB, addr string, change ...func(*redis.Options)) *redis.Client {
	t.Helper()
	opt := &redis.Options{Addr: addr}
	for _, f := range change {
		f(opt)
	}
	client := redis.NewClient(opt)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func noRetries(o *redis.Options) { o.MaxRetries = -1 }

// do sends a command that has to succeed.
func do(t testing.TB, client *redis.Client, args ...any) any {
	t.Helper()
	v, err := client.Do(context.Background(), args...).Result()
	require.NoError(t, err, "%v", args)
	return v
}
