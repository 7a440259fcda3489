package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestServe(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	read, write := io.Pipe()
	status := make(chan int, 1)
	go func() { status <- run(ctx, []string{"-serve", "127.0.0.1:0"}, write, io.Discard) }()
	out := bufio.NewReader(read)
	line, err := out.ReadString('\n')
	require.NoError(t, err)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	url, _, _ := strings.Cut(strings.TrimPrefix(line, "POST "), "/payments")

	hc := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	post := func(user, key, body string) (status int, text, code string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/payments", strings.NewReader(body))
		require.NoError(t, err)
		if user != "" {
			req.Header.Set("Authorization", "Bearer "+user)
		}
		if key != "" {
			req.Header.Set("Idempotency-Key", key)
		}
		resp, err := hc.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(got), resp.Header.Get("Idempotent-Replayed") + string(codeOf(finalAnswer{body: string(got)}))
	}
	const body = `{"order":"order-1","amount":1200,"card":"visa"}`
	_, first, _ := post("alice", "order-1", body)
	for _, tt := range []struct {
		name, user, key, body string
		status                int
		code                  string
	}{
		{"repeat", "alice", "order-1", body, 201, "true"},
		{"quoted key", "alice", `"order-1"`, body, 201, "true"},
		{"other body", "alice", "order-1", strings.Replace(body, "1200", "9900", 1), 409, "idempotency_key_reused_with_different_params"},
		{"other customer", "bob", "order-1", body, 201, ""},
		{"no key", "alice", "", body, 400, "idempotency_key_missing"},
		{"bad key", "alice", "order 1", body, 400, "idempotency_key_invalid"},
		{"nobody", "", "order-1", body, 401, ""},
		{"no payment", "alice", "order-2", "{}", 400, ""},
		{"declined", "alice", "order-3", strings.Replace(body, "visa", "declined", 1), 402, ""},
	} {
		got, text, code := post(tt.user, tt.key, tt.body)
		require.Equal(t, tt.status, got, tt.name)
		require.Equal(t, tt.code, code, tt.name)
		if tt.code == "true" {
			require.Equal(t, first, text, tt.name)
		}
	}

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/charges", nil)
	require.NoError(t, err)
	resp, err := hc.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	var charges []charge
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&charges))
	require.Len(t, charges, 2, "one of alice's, one of bob's")

	interrupt()
	require.Equal(t, 0, <-status)
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"-h"}, 0, "-payments"},
		{[]string{"-nonsense"}, 2, "not defined"},
		{[]string{"-payments", "0"}, 2, "above zero"},
		{[]string{"extra"}, 2, "no arguments"},
		{[]string{"-store", "etcd://localhost"}, 1, "use memory, redis"},
		{[]string{"-store", "postgres://u:secret@127.0.0.1:1/x?connect_timeout=1"}, 1, "payments:"},
		{[]string{"-store", "redis://:secret@127.0.0.1:1"}, 1, "payments:"},
		{[]string{"-serve", "no address"}, 1, "payments:"},
	} {
		var stderr strings.Builder
		require.Equal(t, tt.status, run(t.Context(), tt.args, io.Discard, &stderr), tt.args)
		require.Contains(t, stderr.String(), tt.says)
		require.NotContains(t, stderr.String(), "secret")
	}
}
