package docs_test

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestGuide follows the guide as a reader would: it writes the files, starts what
// is to be started, sends the requests, and compares what comes back. Only the
// addresses are its own, and the lease is shorter.
func TestGuide(t *testing.T) {
	t.Parallel()
	program(t, "curl")
	r := &reader{
		changes: strings.NewReplacer(
			"127.0.0.1:8080", freeAddr(t), "127.0.0.1:8081", freeAddr(t), "127.0.0.1:8090", freeAddr(t),
			"127.0.0.1:6379", startRedis(t), "WithLease(10 * time.Second)", "WithLease(3 * time.Second)"),
		overlay: newOverlay(t),
		running: make(map[string]*service),
	}
	fileName := regexp.MustCompile("`([a-z/]+\\.go)`")
	typed := 0
	for _, b := range readPage(t, guide).blocks {
		switch b.language {
		case "go":
			names := fileName.FindAllStringSubmatch(b.before, -1)
			require.NotEmpty(t, names, "no name of a file in %q", b.before)
			r.write(names[len(names)-1][1], r.changes.Replace(b.text))
		case "console":
			for _, line := range parseConsole(r.changes.Replace(b.text)) {
				r.do(t, line)
				typed++
			}
		default:
			t.Fatalf("what is to be done with a block of %q?", b.language)
		}
	}
	require.Greater(t, typed, 20)
}

// reader is somebody at a desk.
type reader struct {
	changes *strings.Replacer
	overlay *overlay
	running map[string]*service // by their addresses
}

func (r *reader) write(name, text string) {
	r.overlay.add(path.Join("guide", path.Dir(name)), path.Base(name), text)
}

var goRun = regexp.MustCompile(`^((?:[A-Z]+=\S+ )*)go run (\S+)$`)

func (r *reader) do(t *testing.T, line typedLine) {
	t.Helper()
	switch start := goRun.FindStringSubmatch(line.command); {
	case start != nil:
		r.start(t, line, strings.Fields(start[1]), start[2])
	case strings.HasPrefix(line.command, "curl "):
		out := line.run(t)
		for deadline := time.Now().Add(time.Minute); !line.matches(out) && time.Now().Before(deadline); out = line.run(t) {
			// A dead process may hold the key for another moment.
			require.Contains(t, out, "request_in_progress", "%s", line.command)
			time.Sleep(50 * time.Millisecond)
		}
		require.True(t, line.matches(out), "%s\n%s", line.command, out)
	default:
		// The overlay is the module, and the library is not fetched but here.
		require.Regexp(t, `^(mkdir shop && cd shop && go mod init shop|go get github.com/retrysafe/idempotency@latest)$`, line.command)
	}
}

// start builds a program from the files as they are, and starts it in the place
// of what has served its address.
func (r *reader) start(t *testing.T, line typedLine, env []string, folder string) {
	t.Helper()
	require.Len(t, line.want, 1)
	_, addr, ok := strings.Cut(line.want[0], "listening on ")
	require.True(t, ok, line.want[0])
	if old := r.running[addr]; old != nil {
		old.interrupt(t)
	}
	binary := filepath.Join(t.TempDir(), "shop")
	r.overlay.run("build", "-o", binary, "./"+path.Join("internal/guide", folder))
	s := &service{cmd: exec.Command(binary), ended: make(chan struct{})}
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	require.NoError(t, s.cmd.Start())
	go func() {
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.ended
	})
	r.running[addr] = s
	s.awaitListening(t, addr)
	for deadline := time.Now().Add(time.Minute); !strings.Contains(s.out.String(), "listening on "+addr); {
		require.True(t, time.Now().Before(deadline), "%s", s.out.String())
		time.Sleep(10 * time.Millisecond)
	}
}

// service is a program that runs.
type service struct {
	cmd   *exec.Cmd
	out   buffer
	ended chan struct{}
}

func (s *service) awaitListening(t *testing.T, addr string) {
	t.Helper()
	for {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-s.ended:
			t.Fatalf("the service has ended: %s", s.out.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (s *service) interrupt(t *testing.T) {
	_ = s.cmd.Process.Signal(os.Interrupt) // it may have crashed, as it was told
	select {
	case <-s.ended:
	case <-time.After(time.Minute):
		t.Fatalf("the service does not end: %s", s.out.String())
	}
}

// buffer is a bytes.Buffer for two goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// startRedis starts a server of the test's own and returns its address.
func startRedis(t *testing.T) string {
	t.Helper()
	addr := freeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	s := &service{ended: make(chan struct{})}
	s.cmd = exec.Command(program(t, "redis-server"), "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir())
	s.cmd.Stdout = &s.out
	require.NoError(t, s.cmd.Start())
	go func() {
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.ended
	})
	s.awaitListening(t, addr)
	return addr
}
