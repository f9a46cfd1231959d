package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	waiters = 5000 // requests that wait at a time
	equal   = 1000 // equal requests at once
)

// crowd has many ask at a time.
func (b *bench) crowd(ctx context.Context, command string) (err error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if limit.Cur < 2*waiters {
		return fmt.Errorf("%d open files are too few: ulimit -n %d", limit.Cur, 4*waiters)
	}
	if b.waiting, err = b.wait(ctx, command, "one", func(int) string { return "" }); err != nil {
		return err
	}
	if b.queued, err = b.wait(ctx, command, "own", func(i int) string { return fmt.Sprintf(" # %d", i) }); err != nil {
		return err
	}
	return b.count(ctx, command)
}

// wait returns the memory of a test runner with waiters.
func (b *bench) wait(ctx context.Context, command, name string, remark func(int) string) (bytes int64, err error) {
	s, err := b.alone(ctx, command, name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	conns := make([]net.Conn, 0, waiters)
	defer func() {
		for _, conn := range conns {
			conn.Close()
		}
	}()
	for i := range waiters {
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			return 0, err
		}
		conns = append(conns, conn)
		body := fmt.Sprintf(`{"name":"podinfo","namespace":"test","phase":"Progressing","checksum":"5594979469","metadata":{"type":"bash","cmd":"sleep 600%s"}}`, remark(i))
		if _, err := conn.Write(post("/", body)); err != nil {
			return 0, err
		}
	}
	if err := settled(s); err != nil {
		return 0, err
	}
	for _, conn := range conns { // none is answered
		if err := conn.SetReadDeadline(time.Now().Add(time.Millisecond / 10)); err != nil {
			return 0, err
		}
		var first [200]byte
		if n, err := conn.Read(first[:]); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, fmt.Errorf("a request that waits was answered: %q, %w: %s", first[:n], err, s.said())
		}
	}
	return s.peak()
}

// settled returns when the memory of a server grows no more.
func settled(s *server) error {
	last := int64(-1)
	for same := 0; same < 10; {
		now, err := s.peak()
		if err != nil {
			return err
		}
		if same++; now != last {
			last, same = now, 0
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil
}

// alone starts a test runner.
func (b *bench) alone(ctx context.Context, command, name string) (*server, error) {
	s := &server{name: name, addr: "127.0.0.1:8085", args: []string{command, "tester", "--addr", "127.0.0.1:8085", "--log-level", "error",
		"--state", filepath.Join(b.temp, "state-"+name), "--concurrency", "10", "--queue", "10000"}}
	return s, s.start(ctx, b.temp)
}

func post(path, body string) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\nContent-Type: application/json\r\n\r\n%s", path, len(body), body)
}

// count counts the processes that equal requests start.
func (b *bench) count(ctx context.Context, command string) (err error) {
	s, err := b.alone(ctx, command, "equal")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	file := filepath.Join(b.temp, "started")
	request := post("/", fmt.Sprintf(`{"name":"podinfo","namespace":"test","phase":"Progressing","checksum":"5594979469","metadata":{"type":"cmd","cmd":"echo started >>%s; sleep 600"}}`, file))
	var ready, done sync.WaitGroup
	begin := make(chan struct{})
	errs := make(chan error, equal)
	for range equal {
		ready.Add(1)
		done.Go(func() {
			conn, err := net.Dial("tcp", s.addr)
			ready.Done()
			if err != nil {
				errs <- err
				return
			}
			defer conn.Close()
			<-begin
			if _, err := conn.Write(request); err != nil {
				errs <- err
				return
			}
			if status, err := answer(bufio.NewReader(conn)); err != nil || status != "202" {
				errs <- fmt.Errorf("status %s, %w", status, err)
			}
		})
	}
	ready.Wait()
	close(begin)
	done.Wait()
	select {
	case err := <-errs:
		return err
	default:
	}
	time.Sleep(time.Second)
	text, err := os.ReadFile(file)
	b.started = bytes.Count(text, []byte("\n"))
	return err
}
