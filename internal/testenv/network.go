package testenv

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/transport"
)

// A CA is a throw-away certificate authority.
type CA struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA returns a new authority. Clients trust it only if they have its certificate.
func NewCA(t testing.TB) *CA {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "testenv"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	Must(t, err)
	cert, err := x509.ParseCertificate(der)
	Must(t, err)
	return &CA{t, cert, key}
}

var (
	systemOnce sync.Once
	systemCA   *CA
)

// SystemCA returns an authority that replaces those of the system for the rest of
// the process, which must not have loaded them before. A file of
// the test needs the line //go:debug x509usefallbackroots=1 before its package clause.
func SystemCA(t testing.TB) *CA {
	t.Helper()
	systemOnce.Do(func() {
		systemCA = NewCA(t)
		x509.SetFallbackRoots(systemCA.Pool())
	})
	return &CA{t, systemCA.cert, systemCA.key}
}

// PEM returns the authority's certificate.
func (ca *CA) PEM() []byte { return encode("CERTIFICATE", ca.cert.Raw) }

// Pool returns a pool that holds the authority alone.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

// Client returns a client certificate and its key, PEM.
func (ca *CA) Client(name string) (cert, key []byte) {
	return ca.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// ExpiredClient returns a client certificate that expired an hour ago, and its key, PEM.
func (ca *CA) ExpiredClient(name string) (cert, key []byte) {
	return ca.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotAfter:    time.Now().Add(-time.Hour),
	})
}

// Server returns a certificate and its key, PEM, for localhost, 127.0.0.1 and further names.
func (ca *CA) Server(names ...string) (cert, key []byte) {
	return ca.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "localhost"},
		DNSNames:    append([]string{"localhost"}, names...),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// ServerConfig returns the TLS configuration of a server for localhost, 127.0.0.1 and
// further names; with mutual, clients need a certificate of the same authority.
func (ca *CA) ServerConfig(mutual bool, names ...string) *tls.Config {
	ca.t.Helper()
	pair, err := tls.X509KeyPair(ca.Server(names...))
	Must(ca.t, err)
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if mutual {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, ca.Pool()
	}
	return c
}

func (ca *CA) issue(c *x509.Certificate) (cert, key []byte) {
	ca.t.Helper()
	priv := newKey(ca.t)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	Must(ca.t, err)
	c.SerialNumber, c.NotBefore = serial, ca.cert.NotBefore
	if c.NotAfter.IsZero() {
		c.NotAfter = ca.cert.NotAfter
	}
	c.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, c, ca.cert, priv.Public(), ca.key)
	Must(ca.t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(priv)
	Must(ca.t, err)
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", pkcs8)
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Must(t, err)
	return key
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// NamesVariable is the environment variable that gives names addresses in commands
// that tests run, as NAME=ADDRESS NAME=ADDRESS.
const NamesVariable = "HEADGATE_TEST_NAMES"

// network is the network that package transport sees in tests. Every address but
// 127.0.0.1 leads to this machine: a server on loopback is reachable at all of them,
// on its port.
var network struct {
	sync.Mutex
	answers map[string][][]netip.Addr // results of the next lookups of a name; the last one is repeated
}

func init() {
	network.answers = map[string][][]netip.Addr{}
	for _, pair := range strings.Fields(os.Getenv(NamesVariable)) {
		name, address, _ := strings.Cut(pair, "=")
		network.answers[name] = [][]netip.Addr{{netip.MustParseAddr(address)}}
	}
	transport.Dial, transport.LookupNetIP = dial, lookup
}

// Resolve gives a name addresses until the test ends. Each of answers is the result
// of one lookup, addresses separated by spaces, and the last one is repeated. An
// empty answer makes the lookup fail.
func Resolve(t testing.TB, name string, answers ...string) {
	var all [][]netip.Addr
	for _, answer := range answers {
		one := []netip.Addr{}
		for _, address := range strings.Fields(answer) {
			one = append(one, netip.MustParseAddr(address))
		}
		all = append(all, one)
	}
	network.Lock()
	defer network.Unlock()
	network.answers[name] = all
	t.Cleanup(func() {
		network.Lock()
		defer network.Unlock()
		delete(network.answers, name)
	})
}

// testAddrs returns the addresses of a host: none if its lookup is to fail, nil if the host
// belongs to the real network. Each call uses up one answer for the name.
func testAddrs(host string) []netip.Addr {
	if ip, err := netip.ParseAddr(host); err == nil && ip.String() != "127.0.0.1" {
		return []netip.Addr{ip}
	}
	network.Lock()
	defer network.Unlock()
	answers := network.answers[host]
	if len(answers) > 1 {
		network.answers[host] = answers[1:]
	}
	if len(answers) == 0 {
		return nil
	}
	return answers[0]
}

func lookup(ctx context.Context, family, host string) ([]netip.Addr, error) {
	switch all := testAddrs(host); {
	case len(all) > 0:
		return all, nil
	case all != nil:
		return nil, &net.DNSError{Err: "server misbehaving", Name: host, IsTemporary: true}
	}
	return net.DefaultResolver.LookupNetIP(ctx, family, host)
}

// dial connects as d does, and tries one address after the other.
func dial(d *net.Dialer, ctx context.Context, family, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	all := testAddrs(host)
	if err != nil || all == nil {
		return d.DialContext(ctx, family, addr)
	}
	var first error
	for _, ip := range all {
		at := net.JoinHostPort(ip.String(), port)
		to, _ := net.ResolveTCPAddr("tcp", at)
		var conn net.Conn
		if err = d.ControlContext(ctx, family, at, nil); err == nil {
			conn, err = (&net.Dialer{Timeout: d.Timeout}).DialContext(ctx, "tcp", "127.0.0.1:"+port)
		}
		if err == nil {
			return &remoteAddrConn{conn, to}, nil
		}
		if first == nil {
			first = &net.OpError{Op: "dial", Net: family, Addr: to, Err: err}
		}
	}
	return nil, first
}

// A remoteAddrConn claims to be connected to an address that this machine does not have.
type remoteAddrConn struct {
	net.Conn
	at net.Addr
}

func (e *remoteAddrConn) RemoteAddr() net.Addr { return e.at }

// A PrivateHost is a host to which a server at a public address must not send clients.
type PrivateHost struct {
	Host     string // as in a URL
	Metadata bool   // it is a metadata service, which no setting allows
}

// PrivateHosts returns private hosts of all kinds, by address and by name. The names
// resolve until the test ends.
func PrivateHosts(t testing.TB) []PrivateHost {
	for name, address := range map[string]string{
		"loopback.example": "127.0.0.1", "2130706433": "127.0.0.1", "link.example": "169.254.9.9", "site.example": "10.0.0.7", "shared.example": "100.64.0.7",
		"six.example": "fd00::7", "translated.example": "64:ff9b::a00:7", "metadata.example": "169.254.169.254", "metadata.google.internal": "169.254.169.254",
	} {
		Resolve(t, name, address)
	}
	return []PrivateHost{
		{"127.0.0.1", false}, {"127.9.9.9", false}, {"[::1]", false}, {"[::ffff:127.0.0.1]", false}, {"0.0.0.0", false}, {"[::]", false},
		{"localhost", false}, {"loopback.example", false}, {"2130706433", false},
		{"169.254.9.9", false}, {"[fe80::1]", false}, {"link.example", false},
		{"10.1.2.3", false}, {"172.16.0.1", false}, {"192.168.1.1", false}, {"100.64.0.1", false}, {"[fd00::1]", false}, {"[::ffff:10.0.0.1]", false},
		{"[64:ff9b::a00:1]", false}, {"[64:ff9b::7f00:1]", false}, {"[64:ff9b:1::808:808]", false}, {"[2002:a00:1::1]", false},
		{"site.example", false}, {"shared.example", false}, {"six.example", false}, {"translated.example", false},
		{"169.254.169.254", true}, {"[::ffff:169.254.169.254]", true}, {"[fd00:ec2::254]", true}, {"168.63.129.16", true}, {"100.100.100.200", true}, {"192.0.0.192", true},
		{"metadata.example", true}, {"metadata.google.internal", true},
	}
}

// Listen returns a loopback address and calls serve for each connection to it, until
// the test ends. It closes the connection when serve returns. It is for servers that
// speak no protocol or break one.
func Listen(t testing.TB, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return l.Addr().String()
}

// A clock is the clock of a server.
type clock struct{ ahead atomic.Int64 }

// Shift sets the clock of the server ahead of that of the machine by d.
func (c *clock) Shift(d time.Duration) { c.ahead.Store(int64(d)) }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }
