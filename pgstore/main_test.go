package pgstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// server is the PostgreSQL that the tests use, and the schema they make their
// tables in. Without a server url is empty and missing says why.
type server struct {
	url     string
	schema  string
	missing error
}

var testServer server

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		runChild(role)
		return
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	url, stop, err := findServer()
	defer stop()
	if err != nil {
		testServer.missing = err
		return m.Run()
	}
	testServer.url = url
	// A table and its indexes are dropped with each test: a schema full of them
	// would need more locks at once than the server has.
	testServer.schema = "pgstore_test_" + strings.ToLower(rand.Text()[:12])
	if err := onServer("CREATE SCHEMA " + testServer.schema); err != nil {
		fmt.Fprintln(os.Stderr, "pgstore tests:", err)
		return 1
	}
	code := m.Run()
	if err := onServer("DROP SCHEMA " + testServer.schema + " CASCADE"); err != nil {
		fmt.Fprintln(os.Stderr, "pgstore tests:", err)
		return 1
	}
	return code
}

func onServer(sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, testServer.url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// findServer takes the server of POSTGRES_URL, else one on this machine, else
// it starts one from the initdb and postgres in PATH.
func findServer() (url string, stop func(), err error) {
	stop = func() {}
	if url := os.Getenv("POSTGRES_URL"); url != "" {
		return url, stop, ping(url)
	}
	var errs []error
	for _, url := range []string{
		"postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable",
		"postgres://postgres:postgres@127.0.0.1:5432/postgres?sslmode=disable",
	} {
		err := ping(url)
		if err == nil {
			return url, stop, nil
		}
		errs = append(errs, err)
	}
	url, stop, err = startCluster()
	if err != nil {
		return "", stop, errors.Join(append(errs, err)...)
	}
	return url, stop, nil
}

func ping(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// startCluster makes a cluster in a temporary directory and starts it.
func startCluster() (url string, stop func(), err error) {
	stop = func() {}
	dir, err := os.MkdirTemp("", "pgstore-test-")
	if err != nil {
		return "", stop, err
	}
	remove := func() { _ = os.RemoveAll(dir) }
	attr, err := unprivileged(dir)
	if err != nil {
		return "", remove, err
	}
	data := filepath.Join(dir, "data")
	initdb := exec.Command("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	initdb.Dir, initdb.SysProcAttr = dir, attr
	if out, err := initdb.CombinedOutput(); err != nil {
		return "", remove, fmt.Errorf("initdb: %w: %s", err, out)
	}
	port, err := freePort()
	if err != nil {
		return "", remove, err
	}
	postgres := exec.Command("postgres", "-D", data, "-p", strconv.Itoa(port), "-h", "127.0.0.1", "-k", dir,
		"-c", "fsync=off", "-c", "max_connections=200") // only its clients are ever killed
	postgres.Dir, postgres.SysProcAttr = dir, attr
	if err := postgres.Start(); err != nil {
		return "", remove, fmt.Errorf("postgres: %w", err)
	}
	stop = func() {
		_ = postgres.Process.Signal(os.Interrupt) // a fast shutdown
		_ = postgres.Wait()
		remove()
	}
	url = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
	for deadline := time.Now().Add(30 * time.Second); ; {
		if err = ping(url); err == nil || time.Now().After(deadline) {
			return url, stop, err
		}
		time.Sleep(50 * time.Millisecond) // between two pings of a server that starts
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
