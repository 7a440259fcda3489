// Package death kills payment services without warning while clients retry, and
// counts what comes of it. All of it is test code: see the README beside this
// folder.
package death
