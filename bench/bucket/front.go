package main

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/bench/contest"
)

// A front stands before a server. It counts what is asked of it and answers later.
type front struct {
	host string
	http http.Server
	lag  atomic.Int64 // nanoseconds before each answer

	listings, pages, reads, others atomic.Int64
}

// asked is how many requests of each sort there were. A listing has one or more pages.
type asked struct{ listings, pages, reads, others int64 }

// beyond returns how many more requests a is than b.
func (a asked) beyond(b asked) float64 {
	return float64(max(a.listings-b.listings, 0) + max(a.pages-b.pages, 0) + max(a.reads-b.reads, 0) + max(a.others-b.others, 0))
}

func serveFront(behind string) (*front, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &front{host: l.Addr().String()}
	quiet := log.New(io.Discard, "", 0)
	next := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { // the Host stays, for it is signed
			r.Out.URL.Scheme, r.Out.URL.Host = "http", behind
			r.Out.Host = r.In.Host
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 1000, DisableCompression: true},
		ErrorLog:  quiet,
	}
	f.http = http.Server{ErrorLog: quiet, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.note(r)
		time.Sleep(time.Duration(f.lag.Load()))
		next.ServeHTTP(w, r)
	})}
	go f.http.Serve(l)
	return f, nil
}

func (f *front) note(r *http.Request) {
	query := r.URL.Query()
	switch {
	case r.Method == http.MethodGet && query.Has("list-type"):
		f.pages.Add(1)
		if !query.Has("continuation-token") {
			f.listings.Add(1)
		}
	case r.Method == http.MethodGet && !query.Has("location") && r.URL.Path != "/"+bucketName+"/":
		f.reads.Add(1)
	default:
		f.others.Add(1)
	}
}

// took returns what was asked since the last time.
func (f *front) took() asked {
	return asked{f.listings.Swap(0), f.pages.Swap(0), f.reads.Swap(0), f.others.Swap(0)}
}

// prepare lets answers take as long as a contestant has it.
func (f *front) prepare(c contest.Contestant) { f.lag.Store(int64(c.Lag)) }

// Close ends the server.
func (f *front) Close() error { return f.http.Close() }
