// Package servers finds the real servers that the tests of this module need, or
// starts them.
package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// missing skips a test on a desk, and fails it where CI is set.
func missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal("a real server cannot be had, and CI is set: ", err)
	}
	t.Skip("a real server cannot be had: ", err)
}

// RedisAddr returns the server of REDIS_ADDR, else the one on this machine, else
// it starts one from the redis-server in PATH.
func RedisAddr(t testing.TB) string {
	t.Helper()
	if addr := os.Getenv("REDIS_ADDR"); addr != "" {
		return addr
	}
	const local = "127.0.0.1:6379"
	if pingRedis(t, local) == nil {
		return local
	}
	path, err := exec.LookPath("redis-server")
	if err != nil {
		missing(t, err)
	}
	addr := freeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	start(t, exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir()))
	await(t, func() error { return pingRedis(t, addr) })
	return addr
}

func pingRedis(t testing.TB, addr string) error {
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialTimeout: time.Second})
	defer client.Close()
	return client.Ping(t.Context()).Err()
}

// One cluster serves all tests: it takes a while to make.
var postgresServer = sync.OnceValues(findPostgres)

// PostgresURL returns the server of POSTGRES_URL, else the one on this machine,
// else it starts one from the initdb and postgres in PATH.
func PostgresURL(t testing.TB) string {
	t.Helper()
	url, err := postgresServer()
	if err != nil {
		missing(t, err)
	}
	return url
}

func findPostgres() (string, error) {
	if url := os.Getenv("POSTGRES_URL"); url != "" {
		return url, nil
	}
	const local = "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable"
	if pingPostgres(local) == nil {
		return local, nil
	}
	return startPostgres()
}

func pingPostgres(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start starts a server and stops it with the test.
func start(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// await polls until a server that starts answers.
func await(t testing.TB, ping func() error) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := ping()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the server does not start: ", err)
		}
	}
}

// stopPostgres is called by Stop.
var stopPostgres = func() {}

// Stop stops the PostgreSQL that PostgresURL has started, if it has. TestMain
// calls it when the tests are over.
func Stop() { stopPostgres() }

// startPostgres makes a cluster in a temporary directory and starts it.
func startPostgres() (string, error) {
	dir, err := os.MkdirTemp("", "proof-")
	if err != nil {
		return "", err
	}
	stopPostgres = func() { _ = os.RemoveAll(dir) }
	attr, err := unprivileged(dir)
	if err != nil {
		return "", err
	}
	data := filepath.Join(dir, "data")
	initdb := exec.Command("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	initdb.Dir, initdb.SysProcAttr = dir, attr
	if out, err := initdb.CombinedOutput(); err != nil {
		return "", fmt.Errorf("initdb: %w: %s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	postgres := exec.Command("postgres", "-D", data, "-p", strconv.Itoa(port), "-h", "127.0.0.1", "-k", dir, "-c", "fsync=off")
	postgres.Dir, postgres.SysProcAttr = dir, attr
	if err := postgres.Start(); err != nil {
		return "", err
	}
	stopPostgres = func() {
		_ = postgres.Process.Signal(syscall.SIGINT) // a fast shutdown
		_ = postgres.Wait()
		_ = os.RemoveAll(dir)
	}
	url := fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if err := pingPostgres(url); err == nil || time.Now().After(deadline) {
			return url, err
		}
	}
}

// unprivileged makes dir belong to a user that PostgreSQL runs as: it refuses
// root.
func unprivileged(dir string) (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			return nil, err
		}
		return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return nil, errors.New("root, and no other user to run PostgreSQL as")
}
