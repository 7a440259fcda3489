// Package soak runs services over every store for as long as it is told, with
// failing stores and impatient clients, and looks for what grows and for keys
// that stay blocked. All of it is test code: see the README beside this folder.
package soak
