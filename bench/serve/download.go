package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// download downloads a file repeatedly with several clients, each over one
// connection, and returns the bytes per second. It discards the data with as
// little work as possible, because the benchmark measures servers.
func download(addr, path string, clients int, lasts time.Duration) (float64, error) {
	var total atomic.Int64
	var group sync.WaitGroup
	errs := make(chan error, clients)
	begun := time.Now()
	for range clients {
		group.Go(func() {
			if err := downloadOften(addr, path, begun.Add(lasts), &total); err != nil {
				errs <- err
			}
		})
	}
	group.Wait()
	took := time.Since(begun)
	select {
	case err := <-errs:
		return 0, err
	default:
		return float64(total.Load()) / took.Seconds(), nil
	}
}

func downloadOften(addr, path string, end time.Time, total *atomic.Int64) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	for time.Now().Before(end) {
		if _, err := fmt.Fprintf(conn, "GET /%s HTTP/1.1\r\nHost: %s\r\n\r\n", path, addr); err != nil {
			return err
		}
		left, err := answerHead(conn)
		if err != nil {
			return err
		}
		for left > 0 && time.Now().Before(end) {
			n, err := drop(conn.(*net.TCPConn), left)
			if err != nil {
				return err
			}
			left -= n
			total.Add(n)
		}
	}
	return nil
}

// answerHead reads the head of a response and returns the number of body bytes
// that were not received yet.
func answerHead(conn net.Conn) (left int64, err error) {
	in := bufio.NewReaderSize(conn, 4<<10)
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(":"))
		switch {
		case first && !bytes.Contains(line, []byte(" 200 ")):
			return 0, fmt.Errorf("answer %q", bytes.TrimSpace(line))
		case bytes.EqualFold(name, []byte("Content-Length")):
			if left, err = strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64); err != nil {
				return 0, err
			}
		case len(name) == 0:
			if left == 0 {
				return 0, io.ErrUnexpectedEOF
			}
			return left - int64(in.Buffered()), nil
		}
	}
}
