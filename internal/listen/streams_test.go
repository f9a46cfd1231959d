package listen_test

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/listen"
	"github.com/headgate-io/headgate/internal/testenv"
)

// TestStreams has clients of HTTP/2 told how many requests a connection may have
// at a time: bounds of connections bound nothing otherwise.
func TestStreams(t *testing.T) {
	ca := testenv.NewCA(t)
	cert, key := ca.Server("127.0.0.1")
	c := listen.Config{TLS: listen.TLS{Cert: filepath.Join(t.TempDir(), "cert"), Key: filepath.Join(t.TempDir(), "key")}}
	for name, content := range map[string][]byte{c.TLS.Cert: cert, c.TLS.Key: key} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := open(t, c, listen.Service{Handler: ok})
	raw, err := net.Dial("tcp", strings.TrimPrefix(d.url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(raw, &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1", NextProtos: []string{"h2"}})
	defer conn.Close()
	const noSettings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+noSettings); err != nil {
		t.Fatal(err)
	}
	var head [9]byte // of a frame: its length, type, flags and stream; RFC 9113, section 4.1
	if _, err := io.ReadFull(conn, head[:]); err != nil || head[3] != 4 {
		t.Fatalf("the first frame is not SETTINGS: % x, %v", head, err)
	}
	settings := make([]byte, int(head[1])<<8|int(head[2]))
	if _, err := io.ReadFull(conn, settings); err != nil {
		t.Fatal(err)
	}
	has := map[uint16]uint32{}
	for ; len(settings) >= 6; settings = settings[6:] {
		has[binary.BigEndian.Uint16(settings)] = binary.BigEndian.Uint32(settings[2:])
	}
	const concurrentStreams, headerListSize = 3, 6 // section 6.5.2
	if n := has[concurrentStreams]; n != 64 {
		t.Errorf("%d streams at a time, want 64", n)
	}
	if n := has[headerListSize]; n == 0 || n > 128<<10 {
		t.Errorf("%d bytes of a head, want some, and less than 128 KiB", n)
	}
}
