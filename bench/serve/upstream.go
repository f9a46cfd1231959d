package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
)

// Counts are what an upstream was asked for.
type counts struct {
	Greetings, Lists, Packs, Connections int64
}

func (c counts) requests() int64 { return c.Greetings + c.Lists + c.Packs }

func (c counts) less(before counts) counts {
	return counts{c.Greetings - before.Greetings, c.Lists - before.Lists, c.Packs - before.Packs, c.Connections - before.Connections}
}

// An upstream is a Git server that speaks protocol version 2 over HTTP on
// several addresses of this machine. It does no more than look up answers.
type upstream struct {
	repositories                         map[string]*repository // by path
	greetings, lists, packs, connections atomic.Int64
}

// greeting is what the server says about itself (gitprotocol-v2, "Capability Advertisement").
var greeting = bytes.Join([][]byte{
	line("# service=git-upload-pack\n"), []byte("0000"), line("version 2\n"), line("agent=git/2.39.5\n"), line("ls-refs=unborn\n"),
	line("fetch=shallow wait-for-done filter\n"), line("server-option\n"), line("object-format=sha1\n"), []byte("0000"),
}, nil)

// hostOf returns the address of a host.
func hostOf(i int) string { return fmt.Sprintf("127.0.0.%d", i+1) }

// pathOf returns the path of a repository.
func pathOf(i int) string { return fmt.Sprintf("team/repository-%03d.git", i) }

// upstreamRole is runUpstream with the flags of this process.
func upstreamRole() error {
	if err := flag.CommandLine.Parse(os.Args[2:]); err != nil {
		return err
	}
	return runUpstream(*repositories, *hosts)
}

// runUpstream serves until standard input ends. It prints the port.
func runUpstream(repositories, hosts int) error {
	u := &upstream{repositories: map[string]*repository{}}
	for i := range repositories {
		u.repositories["/"+pathOf(i)] = newRepository(pathOf(i))
	}
	server := &http.Server{Handler: u, ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			u.connections.Add(1)
		}
	}}
	first, err := net.Listen("tcp", net.JoinHostPort(hostOf(0), *port))
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(first.Addr().String())
	go server.Serve(first)
	for i := 1; i < hosts; i++ {
		l, err := net.Listen("tcp", net.JoinHostPort(hostOf(i), port))
		if err != nil {
			return errors.Join(err, server.Close())
		}
		go server.Serve(l)
	}
	fmt.Println(port)
	io.Copy(io.Discard, os.Stdin)
	return server.Close()
}

// ServeHTTP implements [http.Handler].
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, service, _ := strings.Cut(r.URL.Path, ".git/")
	repository := u.repositories[path+".git"]
	switch {
	case r.URL.Path == "/counts":
		json.NewEncoder(w).Encode(counts{u.greetings.Load(), u.lists.Load(), u.packs.Load(), u.connections.Load()})
	case repository == nil:
		http.NotFound(w, r)
	case service == "info/refs" && r.Header.Get("Git-Protocol") == "version=2":
		u.greetings.Add(1)
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		w.Write(greeting)
	case service == "git-upload-pack":
		u.answer(w, r, repository)
	default:
		http.Error(w, "this server speaks version 2 of the protocol only", http.StatusForbidden)
	}
}

// answer answers a command of version 2.
func (u *upstream) answer(w http.ResponseWriter, r *http.Request, of *repository) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return
	}
	w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
	switch {
	case bytes.Contains(body, []byte("command=ls-refs")) && bytes.Contains(body, []byte("ref-prefix refs/heads/main")):
		u.lists.Add(1)
		w.Write(of.refs)
	case bytes.Contains(body, []byte("command=fetch")) && bytes.Contains(body, []byte("want "+of.commit)):
		u.packs.Add(1)
		w.Write(of.pack)
	default:
		w.Write(line("ERR not known to this server\n"))
	}
}
