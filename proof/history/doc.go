// Package history runs the library over every store, with faults at each of the
// store's calls and at each message on its way to the server, and checks the
// histories against a sequential model of a key. All of it is test code: see the
// README beside this folder.
package history
