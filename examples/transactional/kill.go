package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// demonstrate runs the same attack on both kinds of store and prints a table.
func demonstrate(ctx context.Context, database string, kills int) error {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "store\tkills\tpayments answered\trequests repeated\tpaid twice or more\tat most")
	for _, leases := range []bool{false, true} {
		a := &attack{
			database: database, leases: leases,
			prefix: "example_kill_" + strings.ToLower(rand.Text()[:8]),
		}
		if err := a.run(ctx, kills); err != nil {
			return err
		}
		name := "pgstore.NewTx"
		if leases {
			name = "pgstore.New"
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d times\n", name, kills, a.answered.Load(), a.repeated.Load(), a.doubles, a.most)
	}
	return table.Flush()
}

// attack kills servers under clients that retry.
type attack struct {
	database, prefix string
	leases           bool

	address            atomic.Value
	ended              atomic.Bool
	answered, repeated atomic.Int64
	doubles, most      int
}

func (a *attack) run(ctx context.Context, kills int) error {
	pool, err := pgxpool.New(ctx, a.database)
	if err != nil {
		return err
	}
	defer pool.Close()
	defer func() {
		_, _ = pool.Exec(context.WithoutCancel(ctx), fmt.Sprintf("DROP TABLE IF EXISTS %[1]s_ledger, %[1]s_keys", a.prefix))
	}()
	stop, err := a.start()
	if err != nil {
		return err
	}
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for !a.ended.Load() && ctx.Err() == nil {
				a.pay(ctx, rand.Text())
			}
		})
	}
	for range kills {
		time.Sleep(mathrand.N(200 * time.Millisecond))
		stop()
		if stop, err = a.start(); err != nil {
			break
		}
	}
	a.ended.Store(true)
	if err != nil {
		return err
	}
	clients.Wait()
	stop()
	return pool.QueryRow(ctx, fmt.Sprintf(`SELECT count(*) FILTER (WHERE n > 1), max(n)
		FROM (SELECT count(*) AS n FROM %s_ledger GROUP BY key) AS payments`, a.prefix)).Scan(&a.doubles, &a.most)
}

// start starts a server; stop kills it, and nothing warns it.
func (a *attack) start() (stop func(), err error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	server := exec.Command(binary, "-addr", "127.0.0.1:0", "-prefix", a.prefix,
		fmt.Sprintf("-leases=%t", a.leases), "-lease", "200ms")
	server.Env = append(os.Environ(), "POSTGRES_URL="+a.database)
	out, err := server.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := server.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return nil, fmt.Errorf("the server did not start: %w", err)
	}
	a.address.Store(strings.TrimSpace(strings.TrimPrefix(line, "listening on ")))
	return stop, nil
}

// pay sends one payment until it is answered.
func (a *attack) pay(ctx context.Context, key string) {
	for ctx.Err() == nil {
		status, err := a.send(ctx, key)
		if err == nil && status == http.StatusCreated {
			a.answered.Add(1)
			return
		}
		a.repeated.Add(1)
		time.Sleep(5 * time.Millisecond)
	}
}

func (a *attack) send(ctx context.Context, key string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	url := "http://" + a.address.Load().(string) + "/payments"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"amount":100}`))
	if err != nil {
		return 0, err
	}
	r.SetBasicAuth("alice", "")
	r.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}
