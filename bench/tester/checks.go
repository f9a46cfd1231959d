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

const (
	connections = 16
	turns       = 10 // of each contestant, in a round
	turn        = 200 * time.Millisecond
)

// check is a request in the format of the reference's client.
var check = func() []byte {
	const body = `{"name":"podinfo","namespace":"test","phase":"Progressing","checksum":"5594979469","metadata":{"type":"gate"}}`
	return fmt.Appendf(nil, "POST /gate/check HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: %d\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n%s", len(body), body)
}()

// countChecks sends gate checks over several connections for the time of a turn and
// returns the number of responses. Every response must have the status. It does
// as little work as possible, because the benchmark measures servers.
func countChecks(addr, status string) (int64, error) {
	var count atomic.Int64
	var group sync.WaitGroup
	errs := make(chan error, connections)
	end := time.Now().Add(turn)
	for range connections {
		group.Go(func() {
			if err := sendChecks(addr, status, end, &count); err != nil {
				errs <- err
			}
		})
	}
	group.Wait()
	select {
	case err := <-errs:
		return 0, err
	default:
		return count.Load(), nil
	}
}

// sendChecks sends checks sequentially over one connection.
func sendChecks(addr, status string, end time.Time, count *atomic.Int64) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for time.Now().Before(end) {
		if _, err := conn.Write(check); err != nil {
			return err
		}
		got, err := answer(in)
		if err != nil {
			return err
		}
		if got != status {
			return fmt.Errorf("status %s, want %s", got, status)
		}
		count.Add(1)
	}
	return nil
}

// answer reads a response with a Content-Length and returns its status.
func answer(in *bufio.Reader) (status string, err error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	if len(line) < 12 {
		return "", fmt.Errorf("status line %q", line)
	}
	status = string(line[9:12])
	length := 0
	for {
		if line, err = in.ReadSlice('\n'); err != nil {
			return "", err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			break
		}
		if value, found := bytes.CutPrefix(line, []byte("Content-Length: ")); found {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return "", err
			}
		}
	}
	_, err = in.Discard(length)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return status, err
}
