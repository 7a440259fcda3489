package death_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/idempotency/proof/internal/servers"
)

var kills = flag.Int("kills", 12, "how often each service is killed")

// TestDeath kills a service again and again while clients retry their payments.
func TestDeath(t *testing.T) {
	for _, kind := range []string{"redis", "lease", "tx"} {
		t.Run(kind, func(t *testing.T) {
			server, counts := open(t, kind)
			s := &service{t: t, kind: kind, server: server.addr, prefix: server.prefix, answers: make(map[string]string)}
			s.run(*kills)
			booked := counts()
			doubles, losses := 0, 0
			for key := range s.answers {
				switch n := booked[key]; {
				case n == 0:
					losses++
				case n > 1:
					doubles++
				}
			}
			t.Logf("%s: %d kills, %d payments, %d attempts, %d replays, %d refused as in progress, %d booked twice, %d lost",
				kind, *kills, len(s.answers), s.attempts.Load(), s.replays.Load(), s.busy.Load(), doubles, losses)
			if losses > 0 || kind == "tx" && doubles > 0 {
				t.Error("payments were lost, or booked twice in one transaction with their records")
			}
		})
	}
}

type place struct{ addr, prefix string }

// open returns where a kind of service writes, and how to read what it booked.
func open(t *testing.T, kind string) (place, func() map[string]int) {
	prefix := "proof_" + strings.ToLower(rand.Text()[:12])
	ctx := context.Background()
	if kind == "redis" {
		addr := servers.RedisAddr(t)
		client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
		t.Cleanup(func() { _ = client.Close() })
		t.Cleanup(func() { client.Del(ctx, prefix+":ledger") })
		return place{addr, prefix}, func() map[string]int {
			booked := make(map[string]int)
			for key, n := range client.HGetAll(ctx, prefix+":ledger").Val() {
				var count int
				_, _ = fmt.Sscan(n, &count)
				booked[key] = count
			}
			return booked
		}
	}
	url := servers.PostgresURL(t)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	exec := func(sql string) {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { exec("DROP SCHEMA " + prefix + " CASCADE"); _ = conn.Close(ctx) })
	exec("CREATE SCHEMA " + prefix)
	exec("CREATE TABLE " + prefix + ".ledger (key text)")
	migrate(t, url, prefix)
	return place{url, prefix}, func() map[string]int {
		rows, err := conn.Query(ctx, "SELECT key, count(*) FROM "+prefix+".ledger GROUP BY key")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		booked := make(map[string]int)
		for rows.Next() {
			var key string
			var n int
			if err := rows.Scan(&key, &n); err != nil {
				t.Fatal(err)
			}
			booked[key] = n
		}
		return booked
	}
}

// service is a payment service and its clients.
type service struct {
	t                    *testing.T
	kind, server, prefix string

	mu      sync.Mutex
	addr    string            // of the child that lives
	answers map[string]string // by key

	attempts, replays, busy atomic.Int64
	over                    atomic.Bool
}

// run kills n children; a last one answers what is left.
func (s *service) run(n int) {
	stop := s.start()
	var clients sync.WaitGroup
	for range 6 {
		clients.Go(func() {
			for !s.over.Load() {
				s.pay(rand.Text())
			}
		})
	}
	for range n {
		time.Sleep(time.Duration(20+mathrand.IntN(150)) * time.Millisecond) // a life
		stop()
		stop = s.start()
	}
	s.over.Store(true)
	clients.Wait()
	stop()
}

// start starts a child; stop kills it.
func (s *service) start() (stop func()) {
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childKind+"="+s.kind, childServer+"="+s.server, childPrefix+"="+s.prefix)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		s.t.Fatal("the child says nothing: ", err)
	}
	s.mu.Lock()
	s.addr = strings.TrimSpace(line)
	s.mu.Unlock()
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = in.Close()
	}
}

// pay retries one payment until it is answered, then asks once more: the answer
// must be the same.
func (s *service) pay(key string) {
	first := s.ask(key)
	if again := s.ask(key); again != first {
		s.t.Errorf("key %s was answered with %q, then with %q", key, first, again)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[key] = first
}

func (s *service) ask(key string) string {
	web := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: (&net.Dialer{}).DialContext, DisableKeepAlives: true}}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		s.mu.Lock()
		addr := s.addr
		s.mu.Unlock()
		r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://"+addr+"/payments", strings.NewReader("{}"))
		if err != nil {
			return err.Error()
		}
		r.Header.Set("Idempotency-Key", key)
		s.attempts.Add(1)
		resp, err := web.Do(r)
		if err != nil {
			continue
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		switch {
		case err != nil:
		case resp.StatusCode == http.StatusCreated:
			if resp.Header.Get("Idempotent-Replayed") != "" {
				s.replays.Add(1)
			}
			return string(body)
		case resp.StatusCode == http.StatusConflict:
			s.busy.Add(1)
		}
	}
	s.t.Errorf("key %s was not answered in a minute", key)
	return ""
}
