package listen

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A spy is a TCP connection that tells by which way it was written to.
type spy struct {
	*net.TCPConn
	files, writes *atomic.Int64 // bytes
}

func (s spy) ReadFrom(r io.Reader) (int64, error) {
	n, err := s.TCPConn.ReadFrom(r)
	s.files.Add(n)
	return n, err
}

func (s spy) Write(p []byte) (int, error) {
	n, err := s.TCPConn.Write(p)
	s.writes.Add(int64(n))
	return n, err
}

// pair returns both ends of a connection of this machine.
func pair(t *testing.T) (ours, theirs *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); other.Close() })
	return other.(*net.TCPConn), c.(*net.TCPConn)
}

// TestFilesReachTheConnection has files go the way that can use sendfile.
func TestFilesReachTheConnection(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcde\n"), 1<<20)
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for what, tt := range map[string]struct {
		reader io.Reader
		want   []byte
		file   bool
	}{
		"a file":         {f, content, true},
		"a part of one":  {io.LimitReader(f, 5<<20), content[:5<<20], true},
		"something else": {bytes.NewReader(content), content, false},
	} {
		t.Run(what, func(t *testing.T) {
			ours, theirs := pair(t)
			if _, err := f.Seek(0, io.SeekStart); err != nil {
				t.Fatal(err)
			}
			s := spy{ours, new(atomic.Int64), new(atomic.Int64)}
			c := &conn{Conn: s, patience: time.Minute, release: func() {}}
			got := make(chan []byte)
			go func() {
				all, _ := io.ReadAll(theirs)
				got <- all
			}()
			n, err := io.Copy(c, tt.reader)
			c.CloseWrite()
			if all := <-got; err != nil || n != int64(len(tt.want)) || !bytes.Equal(all, tt.want) {
				t.Errorf("%d bytes, %v; %d arrived, want %d", n, err, len(all), len(tt.want))
			}
			if direct := s.files.Load() == n; direct != tt.file || s.files.Load()+s.writes.Load() != n {
				t.Errorf("%d bytes of files, %d others", s.files.Load(), s.writes.Load())
			}
		})
	}
}

// A sluggish connection reads 1000 bytes of a file at a time, and sends 600 of
// them before its deadline is over.
type sluggish struct {
	net.Conn
	sent []byte
}

func (s *sluggish) ReadFrom(r io.Reader) (int64, error) {
	buf := make([]byte, 1000)
	n, err := io.ReadFull(r, buf)
	if err == io.EOF {
		return 0, nil
	}
	n = min(n, 600)
	s.sent = append(s.sent, buf[:n]...)
	return int64(n), os.ErrDeadlineExceeded
}

// TestSlowFiles has what was read and not sent in time sent then.
func TestSlowFiles(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcde\n"), 300)
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for what, want := range map[string][]byte{"all": content[7:], "a part": content[7 : 7+3333]} {
		f.Seek(7, io.SeekStart)
		_, theirs := pair(t)
		s := &sluggish{Conn: theirs}
		c := &conn{Conn: s, patience: time.Minute, release: func() {}}
		var r io.Reader = f
		if what == "a part" {
			r = io.LimitReader(f, 3333)
		}
		if n, err := c.ReadFrom(r); err != nil && what == "a part" || n != int64(len(want)) || !bytes.Equal(s.sent, want) {
			t.Errorf("%s: %d bytes, %v; want %d", what, n, err, len(want))
		}
	}
}

// TestPatience drops who takes nothing, and not who takes little.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := func(set func(*conn)) (theirs net.Conn, ended chan error) {
			ours, theirs := net.Pipe()
			c := &conn{Conn: ours, patience: time.Minute, release: func() {}}
			if set != nil {
				set(c)
			}
			ended = make(chan error, 1)
			go func() {
				_, err := c.Write(make([]byte, 500))
				ended <- err
				c.Close()
			}()
			return theirs, ended
		}
		begun := time.Now()
		theirs, ended := start(nil)
		for range 500 {
			time.Sleep(50 * time.Second)
			theirs.Read(make([]byte, 1))
		}
		if err := <-ended; err != nil {
			t.Errorf("a byte every 50 s: %v after %s", err, time.Since(begun))
		}
		begun = time.Now()
		_, ended = start(nil)
		if err := <-ended; !late(err) || time.Since(begun) != time.Minute {
			t.Errorf("nothing: %v after %s", err, time.Since(begun))
		}
		begun = time.Now()
		theirs, ended = start(nil)
		theirs.Read(make([]byte, 100))
		if err := <-ended; !late(err) || time.Since(begun) > 2*time.Minute {
			t.Errorf("nothing any more: %v after %s", err, time.Since(begun))
		}
		begun = time.Now()
		_, ended = start(func(c *conn) { c.SetWriteDeadline(time.Now().Add(time.Second)) })
		if err := <-ended; !late(err) || time.Since(begun) != time.Second {
			t.Errorf("nothing, with a deadline: %v after %s", err, time.Since(begun))
		}
		var own *conn
		begun = time.Now()
		theirs, ended = start(func(c *conn) { own = c })
		theirs.Read(make([]byte, 100))
		own.SetWriteDeadline(time.Now().Add(-time.Second))
		if err := <-ended; !late(err) || time.Since(begun) != 0 {
			t.Errorf("aborted: %v after %s", err, time.Since(begun))
		}
	})
}

func late(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
