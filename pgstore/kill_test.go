package pgstore_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A service is killed again and again, without warning and at any moment, while
// its clients retry until they have an answer. With NewTx each key is booked
// exactly once. With New a kill between the booking and the record lets the
// retry book again; how often is printed, and is what the documentation warns
// of.
func TestKilledService(t *testing.T) {
	for _, test := range []struct {
		role  string
		kills int
		life  time.Duration // of a child, at most
	}{{"tx", 200, 100 * time.Millisecond}, {"lease", 40, 300 * time.Millisecond}} {
		t.Run(test.role, func(t *testing.T) {
			k := newKilled(t, test.role)
			k.run(test.kills, test.life)
			k.check()
		})
	}
}

type killed struct {
	*testing.T
	role    string
	f       fixture
	ledger  fixture
	address [2]atomic.Value // of the children that run now
	ended   atomic.Bool     // no more new keys

	mu      sync.Mutex
	answers map[string]string // by key
	broken  int               // requests without an answer
}

func newKilled(t *testing.T, role string) *killed {
	f := newFixture(t, newPool(t, 2))
	k := &killed{T: t, role: role, f: f, answers: make(map[string]string)}
	k.ledger = fixture{pool: f.pool, sql: quoted(newName(t))}
	k.ledger.exec(t, "CREATE TABLE %s (key text NOT NULL, amount bigint NOT NULL)")
	return k
}

// run kills n children, of which two serve at a time, and lets the last ones
// answer what is left.
func (k *killed) run(n int, life time.Duration) {
	var clients, killers sync.WaitGroup
	var last [len(k.address)]func()
	for i := range k.address {
		last[i] = k.start(i)
		killers.Go(func() {
			for range n / len(k.address) {
				time.Sleep(mathrand.N(life)) // a random moment
				last[i]()
				last[i] = k.start(i)
			}
		})
	}
	for range 8 {
		clients.Go(k.client)
	}
	killers.Wait()
	k.ended.Store(true)
	clients.Wait()
	for _, stop := range last {
		stop()
	}
}

// start starts a child; stop kills it.
func (k *killed) start(i int) (stop func()) {
	stop = func() {}
	line, kill, err := k.spawn()
	if err != nil {
		k.Errorf("a child did not start: %v", err)
		return stop
	}
	k.address[i].Store("http://" + strings.TrimSpace(line) + "/pay")
	return kill
}

func (k *killed) spawn() (line string, kill func(), err error) {
	binary, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	child := exec.Command(binary)
	child.Env = append(os.Environ(), childRole+"="+k.role, childURL+"="+testServer.url,
		childTable+"="+k.f.name, childLedger+"="+k.ledger.sql)
	child.Stderr = os.Stderr
	if _, err := child.StdinPipe(); err != nil { // the child ends with us
		return "", nil, err
	}
	out, err := child.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := child.Start(); err != nil {
		return "", nil, err
	}
	kill = func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}
	line, err = bufio.NewReader(out).ReadString('\n')
	return line, kill, err
}

// client pays for one key after the other, each until it is answered; every
// fourth key by three requests at once.
func (k *killed) client() {
	web := &http.Client{Timeout: 5 * time.Second}
	for !k.ended.Load() && !k.Failed() {
		key := rand.Text()
		n := 1
		if mathrand.IntN(4) == 0 {
			n = 3
		}
		var all sync.WaitGroup
		for range n {
			all.Go(func() { k.pay(web, key) })
		}
		all.Wait()
	}
}

func (k *killed) pay(web *http.Client, key string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		status, body, err := send(ctx, web, k.address[mathrand.IntN(len(k.address))].Load().(string), key, k.ledger.sql)
		switch {
		case err == nil && status == http.StatusCreated:
			k.answered(key, body)
			return
		}
		k.mu.Lock()
		k.broken++
		k.mu.Unlock()
		time.Sleep(5 * time.Millisecond) // between two retries
	}
	k.Errorf("no answer within 30 seconds")
}

func send(ctx context.Context, web *http.Client, url, key, ledger string) (status int, body string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("100"))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Idempotency-Key", key)
	resp, err := web.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusCreated && resp.Header.Get(childHeader) != ledger {
		return 0, "", errors.New("another program's server, on a port that was the child's")
	}
	all, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(all), err
}

func (k *killed) answered(key, body string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if before, ok := k.answers[key]; ok && before != body {
		k.Errorf("two answers for one key")
	}
	k.answers[key] = body
}

func (k *killed) check() {
	booked := make(map[string]int)
	rows, err := k.f.pool.Query(k.Context(), "SELECT key, count(*) FROM "+k.ledger.sql+" GROUP BY key")
	require.NoError(k, err)
	for rows.Next() {
		var key string
		var n int
		require.NoError(k, rows.Scan(&key, &n))
		booked[key] = n
	}
	require.NoError(k, rows.Err())
	doubles, most := 0, 0
	for key, n := range booked {
		require.Contains(k, k.answers, key, "booked and never answered")
		most = max(most, n)
		if n > 1 {
			doubles++
		}
	}
	k.Logf("%d keys answered, %d requests failed or were refused; booked more than once: %d keys, at most %d times",
		len(k.answers), k.broken, doubles, most)
	require.Greater(k, len(k.answers), 100)
	require.Zero(k, query[int](k.T, k.f, "SELECT count(*) FROM %s WHERE status = 'in_progress'"))
	require.Equal(k, len(k.answers), query[int](k.T, k.f, "SELECT count(*) FROM %s WHERE status = 'completed'"))
	for key, body := range k.answers {
		require.Positive(k, booked[key], "answered and not booked")
		require.Equal(k, body, query[string](k.T, k.f,
			"SELECT convert_from(response_body, 'UTF8') FROM %s WHERE idempotency_key = $1", key), "the answer is the record")
	}
	if k.role == "tx" {
		require.Zero(k, doubles)
	}
}
