// Package model is the protocol of the library, small enough for a program to go
// through every state that it can reach. All of it is test code: see the README
// beside this folder.
package model
