package cosign_test

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/theupdateframework/go-tuf/v2/metadata"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/cosign"
	"github.com/headgate-io/headgate/source"
)

// A mirror is a TUF repository with a trusted root, served over HTTP.
type mirror struct {
	url    string
	anchor []byte

	t       *testing.T
	signer  signature.Signer
	version int64

	mu       sync.Mutex
	files    map[string][]byte
	requests int
	fail     int           // status of all responses; 0: serve the files
	hold     chan struct{} // if not nil, requests wait until it is closed
	held     chan struct{} // receives a value for each waiting request
}

func newMirror(t *testing.T, trustedRoot string) *mirror {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	must(t, err)
	signer, err := signature.LoadSigner(private, crypto.Hash(0))
	must(t, err)
	m := &mirror{t: t, signer: signer, files: map[string][]byte{}, held: make(chan struct{}, 16)}
	root := metadata.Root(time.Now().Add(time.Hour))
	key, err := metadata.KeyFromPublicKey(public)
	must(t, err)
	for _, role := range []string{metadata.ROOT, metadata.TIMESTAMP, metadata.SNAPSHOT, metadata.TARGETS} {
		must(t, root.Signed.AddKey(key, role))
	}
	m.anchor = signed(m, root)
	m.publish(trustedRoot)
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	m.url = server.URL
	return m
}

// signed signs metadata and returns its text.
func signed[T metadata.Roles](m *mirror, meta *metadata.Metadata[T]) []byte {
	m.t.Helper()
	_, err := meta.Sign(m.signer)
	must(m.t, err)
	text, err := meta.ToBytes(false)
	must(m.t, err)
	return text
}

// publish replaces the trusted root.
func (m *mirror) publish(trustedRoot string) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.version++
	targets := metadata.Targets(time.Now().Add(time.Hour))
	targets.Signed.Version = m.version
	info, err := metadata.TargetFile().FromBytes("trusted_root.json", []byte(trustedRoot), "sha256")
	must(m.t, err)
	targets.Signed.Targets["trusted_root.json"] = info
	snapshot := metadata.Snapshot(time.Now().Add(time.Hour))
	snapshot.Signed.Version = m.version
	snapshot.Signed.Meta["targets.json"] = metadata.MetaFile(m.version)
	timestamp := metadata.Timestamp(time.Now().Add(time.Hour))
	timestamp.Signed.Version = m.version
	timestamp.Signed.Meta["snapshot.json"] = metadata.MetaFile(m.version)
	m.files[fmt.Sprintf("/%d.targets.json", m.version)] = signed(m, targets)
	m.files[fmt.Sprintf("/%d.snapshot.json", m.version)] = signed(m, snapshot)
	m.files["/timestamp.json"] = signed(m, timestamp)
	m.files["/targets/"+info.Hashes["sha256"].String()+".trusted_root.json"] = []byte(trustedRoot)
}

func (m *mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	m.requests++
	text, status, hold := m.files[r.URL.Path], m.fail, m.hold
	m.mu.Unlock()
	if hold != nil {
		m.held <- struct{}{}
		select {
		case <-hold:
		case <-r.Context().Done():
			return
		}
	}
	switch {
	case status != 0:
		w.WriteHeader(status)
	case text == nil:
		w.WriteHeader(http.StatusNotFound)
	default:
		w.Write(text)
	}
}

// set changes fields of m under its lock.
func (m *mirror) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

// asked returns the number of requests since its last call.
func (m *mirror) asked() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.requests
	m.requests = 0
	return n
}

// A clock changes its time only by pass.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// A mirrorTest test has a keyless signature, a mirror with the trusted root, and a technology.
type mirrorTest struct {
	t *testing.T
	s *sigstore
	m *mirror
	c *clock
	cosign.Config
	make    oci.Technology
	trust   oci.Trust
	repo    *oci.Repository
	subject ocispec.Descriptor
}

func newMirrorTest(t *testing.T, change func(*mirrorTest)) *mirrorTest {
	t.Helper()
	s := newSigstore(t)
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	l := &mirrorTest{t: t, s: s, m: newMirror(t, s.trustedRoot(t)), c: &clock{now: time.Now()}, repo: connect(t, g, "app"), subject: subjectOf(g, "app")}
	attach(t, g, "app", l.subject, s.good(l.subject.Digest).bundle(t))
	l.Config = cosign.Config{Mirror: l.m.url, Anchor: l.m.anchor, Now: l.c.Now}
	if change != nil {
		change(l)
	}
	l.make = cosign.New(l.Config)
	l.trust = oci.Trust{Identities: s.trust(t).Identities}
	return l
}

func (l *mirrorTest) verify(ctx context.Context) error {
	v, err := l.make(l.repo, l.trust)
	if err != nil {
		return err
	}
	_, err = v.Verify(ctx, l.subject)
	return err
}

// expect verifies the signature, and checks the error and whether the mirror was contacted.
func (l *mirrorTest) expect(want string, contacted bool) {
	l.t.Helper()
	l.m.asked()
	err := l.verify(l.t.Context())
	switch {
	case want == "" && err != nil:
		l.t.Errorf("error %v", err)
	case want != "" && missingParts(err, want) != nil:
		l.t.Errorf("error %v lacks %q", err, missingParts(err, want))
	}
	testenv.Equal(l.t, l.m.asked() > 0, contacted, "the mirror was contacted")
}

// TestMirrorIsAskedOnce checks that the mirror is contacted again only after a day.
func TestMirrorIsAskedOnce(t *testing.T) {
	l := newMirrorTest(t, nil)
	l.expect("", true)
	l.c.pass(23 * time.Hour)
	l.expect("", false)
	l.c.pass(2 * time.Hour)
	l.expect("", true)
}

// TestKeysNeedNoMirror checks that the mirror is not contacted with keys, or with a root in a
// Secret.
func TestKeysNeedNoMirror(t *testing.T) {
	l := newMirrorTest(t, nil)
	l.trust.Root = secret("trusted_root.json", l.s.trustedRoot(t))
	l.expect("", false)
	l.trust = recorded(t, "p256")
	l.expect("it was made with a certificate", false)
}

// TestNewRoot checks that a new root is fetched after keys were replaced.
func TestNewRoot(t *testing.T) {
	l := newMirrorTest(t, nil)
	before := newSigstore(t).trustedRoot(t)
	l.m.publish(before)
	l.expect("it comes with no entry of a trusted log", true)
	l.m.publish(l.s.trustedRoot(t))
	l.expect("it comes with no entry of a trusted log", false) // fetched less than a minute ago
	l.c.pass(time.Minute)
	l.expect("", true)
	l.expect("", false)
}

// TestRefusalAsksTheMirror checks that an invalid signature causes a fetch of the root, at most
// once a minute.
func TestRefusalAsksTheMirror(t *testing.T) {
	l := newMirrorTest(t, nil)
	l.expect("", true)
	l.trust.Identities = []source.OIDCIdentityMatch{{Issuer: "nobody", Subject: "nobody"}}
	l.c.pass(time.Minute)
	l.expect("which matches no entry of spec.verify.matchOIDCIdentity", true)
	l.expect("which matches no entry of spec.verify.matchOIDCIdentity", false)
	l.c.pass(time.Minute)
	l.m.set(func() { l.m.fail = http.StatusBadGateway })
	l.expect("which matches no entry of spec.verify.matchOIDCIdentity", true) // the error of the mirror is not reported
	l.trust.Identities = l.s.trust(t).Identities
	l.expect("", false)
}

// TestMirrorFails tests a mirror that answers with errors.
func TestMirrorFails(t *testing.T) {
	l := newMirrorTest(t, nil)
	const want = "spec.verify.trustedRootSecretRef needs no network|502"
	l.m.set(func() { l.m.fail = http.StatusBadGateway })
	l.expect(want+"|"+l.m.url, true)
	l.expect(want, true) // failures are not cached, because verifiers may use different proxies
	if err := l.verify(t.Context()); errors.Is(err, source.ErrVerification) {
		t.Errorf("error %v refuses a signature", err)
	}
	l.m.set(func() { l.m.fail = 0 })
	l.c.pass(time.Minute)
	l.expect("", true)
	l.c.pass(25 * time.Hour)
	l.m.set(func() { l.m.fail = http.StatusBadGateway })
	l.expect(want, true) // a root is not used after a day
}

// TestMirrorIsNotTrusted tests a mirror with files that are not validly signed.
func TestMirrorIsNotTrusted(t *testing.T) {
	for name, spoil := range map[string]func(*mirrorTest){
		"another anchor": func(l *mirrorTest) { l.Anchor = newMirror(t, "{}").anchor },
		"no anchor":      func(l *mirrorTest) { l.Anchor = []byte("{}") },
		"tampered target": func(l *mirrorTest) {
			for path := range l.m.files {
				if strings.HasPrefix(path, "/targets/") {
					l.m.files[path] = []byte(newSigstore(t).trustedRoot(t))
				}
			}
		},
		"unsigned timestamp": func(l *mirrorTest) { l.m.files["/timestamp.json"] = []byte(`{"signed":{},"signatures":[]}`) },
		"endless timestamp":  func(l *mirrorTest) { l.m.files["/timestamp.json"] = []byte(strings.Repeat(" ", 1<<20)) },
		"broken target":      func(l *mirrorTest) { l.m.publish("{}") },
	} {
		t.Run(name, func(t *testing.T) {
			l := newMirrorTest(t, spoil)
			err := l.verify(l.t.Context())
			if missing := missingParts(err, "read the trusted root of Sigstore from "); missing != nil || errors.Is(err, source.ErrVerification) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestMirrorStalls tests verifications that wait for the mirror until they are canceled.
// A later verification sends its own requests and does not wait for them.
func TestMirrorStalls(t *testing.T) {
	l := newMirrorTest(t, nil)
	hold := make(chan struct{})
	defer close(hold)
	l.m.set(func() { l.m.hold = hold })
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 2)
	for range cap(errs) {
		go func() { errs <- l.verify(ctx) }()
		<-l.m.held
	}
	l.m.set(func() { l.m.hold = nil })
	l.expect("", true)
	cancel()
	for range cap(errs) {
		if err := <-errs; !errors.Is(err, context.Canceled) || errors.Is(err, source.ErrVerification) {
			t.Errorf("error %v, want that of the context", err)
		}
	}
	l.expect("", false)
}

// TestAtOnce runs concurrent verifications: with separate verifiers, with a shared one, and
// with a shared one whose root is in a Secret.
func TestAtOnce(t *testing.T) {
	l := newMirrorTest(t, nil)
	must(t, l.verify(t.Context()))
	each := l.m.asked()
	l.c.pass(25 * time.Hour)
	one, err := l.make(l.repo, l.trust)
	must(t, err)
	trust := l.trust
	trust.Root = secret("trusted_root.json", l.s.trustedRoot(t))
	given, err := l.make(l.repo, trust)
	must(t, err)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			_, err := one.Verify(t.Context(), l.subject)
			_, other := given.Verify(t.Context(), l.subject)
			if err = errors.Join(err, other, l.verify(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := l.m.asked(); n > 8*each {
		t.Errorf("%d requests for eight at once, and %d for one", n, each)
	}
	l.expect("", false)
}

// TestCache checks that files of the mirror are cached in the directory, and nowhere else.
func TestCache(t *testing.T) {
	home := t.TempDir()
	for _, name := range []string{"HOME", "USERPROFILE"} {
		t.Setenv(name, home)
	}
	dir := t.TempDir()
	l := newMirrorTest(t, func(l *mirrorTest) { l.Cache = dir })
	l.expect("", true)
	l.make = cosign.New(l.Config) // as in another process
	l.expect("", false)

	l.make = cosign.New(l.Config)
	l.trust.Identities = []source.OIDCIdentityMatch{{Issuer: "nobody", Subject: "nobody"}}
	l.expect("which matches no entry", true) // the cache may be outdated

	l = newMirrorTest(t, nil)
	l.expect("", true)
	l.make = cosign.New(l.Config)
	l.expect("", true)
	if list, err := os.ReadDir(home); err != nil || len(list) > 0 {
		t.Errorf("the home directory holds %v, %v", list, err)
	}
	if err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if !d.IsDir() && !strings.HasSuffix(name, ".json") {
			t.Errorf("the cache holds %s", name)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}
