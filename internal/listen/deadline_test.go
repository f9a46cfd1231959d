package listen

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestDeadlines has deadlines come when the last one says, whichever was set
// before: the runtime is not told of all.
func TestDeadlines(t *testing.T) {
	for name, tt := range map[string]struct {
		deadlines []time.Duration // set before a read, 0 for none
		during    []time.Duration // set a second later
		ends      time.Duration   // of the read; 0 when it waits until something comes
	}{
		"one":                         {[]time.Duration{5 * time.Second}, nil, 5 * time.Second},
		"a later one":                 {[]time.Duration{5 * time.Second, time.Minute}, nil, time.Minute},
		"a nearer one":                {[]time.Duration{time.Minute, 5 * time.Second}, nil, 5 * time.Second},
		"none after one":              {[]time.Duration{5 * time.Second, 0}, nil, 0},
		"one that is over":            {[]time.Duration{-time.Hour}, nil, time.Nanosecond},
		"none after one that is over": {[]time.Duration{-time.Hour, 0}, nil, 0},
		"later during a read":         {[]time.Duration{5 * time.Second}, []time.Duration{time.Minute}, time.Minute + time.Second},
		"nearer during a read":        {[]time.Duration{time.Minute}, []time.Duration{5 * time.Second}, 6 * time.Second},
		"over during a read":          {[]time.Duration{time.Minute}, []time.Duration{-time.Hour}, time.Second},
		"over and none":               {nil, []time.Duration{time.Minute, 0}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				defer theirs.Close()
				c := &conn{Conn: ours, patience: time.Minute, release: func() {}}
				defer c.Close()
				set := func(all []time.Duration) {
					for _, d := range all {
						at := time.Time{}
						if d != 0 {
							at = time.Now().Add(d)
						}
						if err := c.SetReadDeadline(at); err != nil {
							t.Error(err)
						}
					}
				}
				c.SetReadDeadline(time.Now().Add(2 * time.Second)) // of a read before, which succeeded
				go theirs.Write([]byte("x"))
				if _, err := c.Read(make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				set(tt.deadlines)
				time.AfterFunc(time.Second, func() { set(tt.during) })
				if tt.ends == 0 {
					time.AfterFunc(time.Hour, func() { theirs.Write([]byte("y")) })
				}
				_, err := c.Read(make([]byte, 1))
				took := time.Since(start)
				if tt.ends == 0 && (err != nil || took != time.Hour) {
					t.Errorf("after %s: %v, want what came in an hour", took, err)
				}
				if tt.ends != 0 && (!errors.Is(err, os.ErrDeadlineExceeded) || took != tt.ends.Truncate(time.Second)) {
					t.Errorf("after %s: %v, want a missed deadline after %s", took, err, tt.ends)
				}
			})
		})
	}
}

// TestPatienceBegins has each write its whole time, also a moment before that of the one before is over.
func TestPatienceBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		c := &conn{Conn: ours, patience: time.Minute, release: func() {}}
		defer c.Close()
		go theirs.Read(make([]byte, 1))
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		for _, after := range []time.Duration{59 * time.Second, time.Hour} {
			time.Sleep(after)
			start := time.Now()
			if _, err := c.Write([]byte("y")); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Minute {
				t.Errorf("after %s: %v, want a missed deadline after a minute", time.Since(start), err)
			}
		}
		c.SetWriteDeadline(time.Now().Add(5 * time.Second))
		start := time.Now()
		if _, err := c.Write([]byte("z")); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != 5*time.Second {
			t.Errorf("after %s: %v, want a missed deadline after 5 s", time.Since(start), err)
		}
	})
}

// A countingConn counts the deadlines of reads that it is told.
type countingConn struct {
	net.Conn
	told int
}

func (c *countingConn) SetReadDeadline(t time.Time) error {
	c.told++
	return c.Conn.SetReadDeadline(t)
}

// TestDeadlinesBetweenReads has the runtime told of one deadline, and not of
// those that net/http sets for each request when none of them is nearer.
func TestDeadlinesBetweenReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		counting := &countingConn{Conn: ours}
		c := &conn{Conn: counting, patience: time.Minute, release: func() {}}
		defer c.Close()
		for range 10 {
			for _, after := range []time.Duration{5 * time.Second, -time.Hour, 0, time.Hour} {
				at := time.Time{}
				if after != 0 {
					at = time.Now().Add(after)
				}
				c.SetReadDeadline(at)
			}
			go theirs.Write([]byte("x"))
			if _, err := c.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if counting.told != 1 {
			t.Errorf("10 reads told %d deadlines, want 1", counting.told)
		}
	})
}

// TestMissedDeadline has a read after one that missed its deadline wait for what the next says.
func TestMissedDeadline(t *testing.T) {
	for _, next := range []time.Duration{0, 2 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer theirs.Close()
			c := &conn{Conn: ours, patience: time.Minute, release: func() {}}
			defer c.Close()
			c.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
			at := time.Time{}
			if next != 0 {
				at = time.Now().Add(next)
			}
			c.SetReadDeadline(at)
			time.AfterFunc(time.Hour, func() { theirs.Write([]byte("x")) })
			if _, err := c.Read(make([]byte, 1)); err != nil {
				t.Errorf("with %s to wait: %v, want what came in an hour", next, err)
			}
		})
	}
}
