//go:build !unix

package pgstore_test

import "syscall"

// unprivileged has nothing to do where there is no root.
func unprivileged(string) (*syscall.SysProcAttr, error) { return nil, nil }
