package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
)

// An upstream is a Git server that speaks protocol version 2 over HTTP on several loopback
// addresses. It only looks up prepared answers.
type upstream map[string]*repository // by path

// advertisement is the capability advertisement (gitprotocol-v2, "Capability Advertisement").
var advertisement = bytes.Join([][]byte{
	pktLine("# service=git-upload-pack\n"), []byte("0000"), pktLine("version 2\n"), pktLine("agent=git/2.39.5\n"), pktLine("ls-refs=unborn\n"),
	pktLine("fetch=shallow wait-for-done filter\n"), pktLine("server-option\n"), pktLine("object-format=sha1\n"), []byte("0000"),
}, nil)

// hostOf returns the address of host i.
func hostOf(i int) string { return fmt.Sprintf("127.0.0.%d", i+1) }

// pathOf returns the path of repository i.
func pathOf(i int) string { return fmt.Sprintf("team/repository-%03d.git", i) }

// runUpstream prints the port and serves until standard input is closed.
func runUpstream() error {
	if err := flag.CommandLine.Parse(os.Args[2:]); err != nil {
		return err
	}
	u := upstream{}
	for i := range *repositories {
		u["/"+pathOf(i)] = newRepository(pathOf(i))
	}
	port := "0"
	for i := range *hosts {
		l, err := net.Listen("tcp", net.JoinHostPort(hostOf(i), port))
		if err != nil {
			return err
		}
		_, port, _ = net.SplitHostPort(l.Addr().String())
		go http.Serve(l, u)
	}
	fmt.Println(port)
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// An upstreamProcess is an upstream in another process.
type upstreamProcess struct {
	cmd  *exec.Cmd
	in   io.Closer
	port string
}

func startUpstream(ctx context.Context) (*upstreamProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "upstream", fmt.Sprint("-repositories=", *repositories), fmt.Sprint("-hosts=", *hosts))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p := &upstreamProcess{cmd: cmd, in: in}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := fmt.Fscanln(out, &p.port); err != nil {
		return nil, errors.Join(err, p.end())
	}
	return p, nil
}

// end stops the process and waits for it.
func (p *upstreamProcess) end() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }

// ServeHTTP implements [http.Handler].
func (u upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, service, _ := strings.Cut(r.URL.Path, ".git/")
	repository := u[path+".git"]
	switch {
	case repository == nil:
		http.NotFound(w, r)
	case service == "info/refs" && r.Header.Get("Git-Protocol") == "version=2":
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		w.Write(advertisement)
	case service == "git-upload-pack":
		answer(w, r, repository)
	default:
		http.Error(w, "this server speaks version 2 of the protocol only", http.StatusForbidden)
	}
}

// answer answers a command of protocol version 2.
func answer(w http.ResponseWriter, r *http.Request, of *repository) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return
	}
	w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
	switch {
	case bytes.Contains(body, []byte("command=ls-refs")) && bytes.Contains(body, []byte("ref-prefix refs/heads/main")):
		w.Write(of.refs)
	case bytes.Contains(body, []byte("command=fetch")) && bytes.Contains(body, []byte("want "+of.commit)):
		w.Write(of.pack)
	default:
		w.Write(pktLine("ERR not known to this server\n"))
	}
}
