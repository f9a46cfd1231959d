package e2e

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/headgate-io/headgate/internal/testenv"
)

// A bucketSource is a Bucket and the Secrets it names.
type bucketSource struct {
	spec    map[string]any       // other than interval and timeout
	secrets map[string]stringMap // by referring field, for example sts.secretRef
}

// bucketAt returns a source of the bucket at host, over plain HTTP.
func bucketAt(host, bucket string) bucketSource {
	return bucketSource{spec: map[string]any{"endpoint": host, "bucketName": bucket, "insecure": true}}
}

// with returns a copy of the source with a field set.
func (s bucketSource) with(field string, value any) bucketSource {
	s.spec = maps.Clone(s.spec)
	s.spec[field] = value
	return s
}

// secret returns a copy of the source with the Secret of a field set.
func (s bucketSource) secret(field string, data stringMap) bucketSource {
	secrets := map[string]stringMap{}
	maps.Copy(secrets, s.secrets)
	secrets[field] = data
	s.secrets = secrets
	return s
}

// secure returns a copy of the source that uses TLS with a private authority.
func (s bucketSource) secure(host string, trust stringMap) bucketSource {
	return s.with("endpoint", host).with("insecure", false).secret("certSecretRef", trust)
}

func (s bucketSource) manifest(t *testing.T) string {
	t.Helper()
	return manifest(t, "Bucket", s.spec, s.secrets)
}

// fetchBucket runs headgate fetch, which must succeed. It returns the revision and the files of the
// artifact.
func fetchBucket(t *testing.T, store string, s bucketSource) (revision string, held stringMap) {
	t.Helper()
	got := fetchSource(t, store, s)
	if got.code != 0 || got.status.Artifact == nil {
		t.Fatalf("exit code %d, %+v\n%s", got.code, got.status, got.stderr)
	}
	a := got.status.Artifact
	return a.Revision, archiveFiles(t, read(t, filepath.Join(store, filepath.FromSlash(a.Path))))
}

// newStoreProxy returns a recording proxy in front of an object store. It records "list" for a page
// of a listing, "location" for the location of a bucket, and else the path.
func newStoreProxy(t *testing.T, addr string) *recordingProxy {
	t.Helper()
	return newNamingProxy(t, addr, func(r *http.Request) string {
		query := r.URL.Query()
		switch {
		case query.Has("list-type"), query.Get("comp") == "list", strings.HasSuffix(r.URL.Path, "/o"):
			return "list"
		case query.Has("location"):
			return "location"
		}
		return r.URL.Path
	})
}

// wantRequests checks the requests to a proxy since the last call, in any order.
func wantRequests(t *testing.T, f *recordingProxy, want ...string) {
	t.Helper()
	got := f.takeRequests()
	slices.Sort(got)
	slices.Sort(want)
	testenv.Equal(t, got, want, "the store was asked")
}

// rootKeys are the root credentials of the S3 stores.
var rootKeys = stringMap{"accesskey": "headgate-root", "secretkey": "canary-root-secret"}

// A minioServer configures MinIO.
type minioServer struct {
	ca     *testenv.CA // nil: plain HTTP
	region string
	env    []string
}

// An objectStore is an S3 store with a client that writes to it.
type objectStore struct {
	t    *testing.T
	addr string
	*minio.Client
}

// serve starts MinIO.
func (s minioServer) serve(t *testing.T) *objectStore {
	t.Helper()
	addr, _ := freeAddr(t)
	dir := t.TempDir()
	args := []string{"server", "--quiet", "--address", addr, "--certs-dir", dir}
	web := &http.Transport{}
	scheme := "http"
	if s.ca != nil {
		cert, key := s.ca.Server()
		write(t, filepath.Join(dir, "public.crt"), string(cert))
		write(t, filepath.Join(dir, "private.key"), string(key))
		web, scheme = newTransport(s.ca), "https"
	}
	cmd := exec.Command(tool(t, "minio"), append(args, filepath.Join(dir, "data"))...)
	cmd.Env = append([]string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "MINIO_ROOT_USER=" + rootKeys["accesskey"], "MINIO_ROOT_PASSWORD=" + rootKeys["secretkey"],
		"MINIO_BROWSER=off", "MINIO_UPDATE=off", "MINIO_SITE_REGION=" + s.region}, s.env...)
	start(t, cmd)
	awaitOK(t, &http.Client{Transport: web}, scheme+"://"+addr+"/minio/health/ready")
	return newObjectStore(t, addr, s.region, web, s.ca != nil)
}

// serveVersity starts versitygw on a directory whose files are the objects.
func serveVersity(t *testing.T) *objectStore {
	t.Helper()
	addr, _ := freeAddr(t)
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	must(t, os.Mkdir(data, 0o755))
	cmd := exec.Command(tool(t, "versitygw"), "--port", addr, "--iam-dir", dir, "--health", "/health", "posix", data)
	cmd.Env = []string{"ROOT_ACCESS_KEY=" + rootKeys["accesskey"], "ROOT_SECRET_KEY=" + rootKeys["secretkey"], "HOME=" + dir}
	start(t, cmd)
	awaitOK(t, http.DefaultClient, "http://"+addr+"/health")
	return newObjectStore(t, addr, "us-east-1", http.DefaultTransport, false)
}

func newObjectStore(t *testing.T, addr, region string, web http.RoundTripper, secure bool) *objectStore {
	t.Helper()
	if region == "" {
		region = "us-east-1"
	}
	c, err := minio.New(addr, &minio.Options{Region: region, Transport: web, Secure: secure, Creds: credentials.NewStaticV4(rootKeys["accesskey"], rootKeys["secretkey"], "")})
	must(t, err)
	return &objectStore{t, addr, c}
}

// awaitOK waits until a server answers 200.
func awaitOK(t *testing.T, c *http.Client, url string) {
	t.Helper()
	waitUntil(t, url+" answers", func() bool {
		r, err := c.Get(url)
		if err == nil {
			r.Body.Close()
		}
		return err == nil && r.StatusCode == http.StatusOK
	})
}

// bucket creates a bucket with objects.
func (s *objectStore) bucket(name string, objects stringMap) {
	s.t.Helper()
	must(s.t, s.MakeBucket(s.t.Context(), name, minio.MakeBucketOptions{}))
	for key, text := range objects {
		s.put(name, key, text)
	}
}

// put writes an object.
func (s *objectStore) put(bucket, key, text string) {
	s.t.Helper()
	_, err := s.PutObject(s.t.Context(), bucket, key, strings.NewReader(text), int64(len(text)), minio.PutObjectOptions{})
	must(s.t, err)
}

// publish permits anonymous listing and reading of a bucket.
func (s *objectStore) publish(bucket string) {
	s.t.Helper()
	must(s.t, s.SetBucketPolicy(s.t.Context(), bucket, `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":["*"]},`+
		`"Action":["s3:ListBucket","s3:GetObject","s3:GetBucketLocation"],"Resource":["arn:aws:s3:::`+bucket+`","arn:aws:s3:::`+bucket+`/*"]}]}`))
}

// TestBucketRequests counts the requests to S3 stores.
func TestBucketRequests(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(*testing.T) *objectStore{
		"minio":     func(t *testing.T) *objectStore { return minioServer{}.serve(t) },
		"versitygw": serveVersity,
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			s.bucket("app", files)
			all := maps.Clone(files)
			all["large.bin"] = s.multipart("app", "large.bin")
			c := requestCountTest{proxy: newStoreProxy(t, s.addr), store: t.TempDir(), files: all, pathPrefix: "/app/"}
			c.source = bucketAt(c.proxy.addr, "app").secret("secretRef", rootKeys)
			changed := c.run(t, func(key, text string) { s.put("app", key, text) })
			s.put("app", "README.md", all["README.md"])
			if again, _ := fetchBucket(t, c.store, c.source); again != changed {
				t.Errorf("what was written again as it was had %s and has %s", changed, again)
			}
			wantRequests(t, c.proxy, "GET list 200")
			must(t, s.RemoveObject(t.Context(), "app", "docs/naïve name", minio.RemoveObjectOptions{}))
			delete(all, "docs/naïve name")
			_, held := fetchBucket(t, c.store, c.source)
			wantFiles(t, held, all)
			wantRequests(t, c.proxy, "GET list 200")
		})
	}
}

// TestBucketAzureRequests counts the requests to Azurite.
func TestBucketAzureRequests(t *testing.T) {
	t.Parallel()
	s := serveAzurite(t, nil)
	s.container("app", nil, files)
	c := requestCountTest{proxy: newStoreProxy(t, s.addr), store: t.TempDir(), files: maps.Clone(files), pathPrefix: "/" + azureAccount + "/app/"}
	c.source = bucketAt("http://"+c.proxy.addr+"/"+azureAccount, "app").with("provider", "azure").secret("secretRef", stringMap{"accountKey": s.key})
	c.run(t, func(key, text string) { s.put("app", key, text) })
}

// A requestCountTest fetches a bucket through a recording proxy.
type requestCountTest struct {
	proxy      *recordingProxy
	source     bucketSource
	store      string
	files      stringMap // including README.md
	pathPrefix string    // path prefix of the objects
}

// run fetches three times: everything, then nothing because nothing changed, then one changed
// object. It returns the last revision.
func (c *requestCountTest) run(t *testing.T, put func(key, text string)) (revision string) {
	t.Helper()
	first, held := fetchBucket(t, c.store, c.source)
	wantFiles(t, held, c.files)
	want := []string{"GET list 200"}
	for key := range c.files {
		want = append(want, "GET "+c.pathPrefix+key+" 200")
	}
	wantRequests(t, c.proxy, want...)
	if again, _ := fetchBucket(t, c.store, c.source); again != first {
		t.Errorf("what is unchanged was %s and is %s", first, again)
	}
	wantRequests(t, c.proxy, "GET list 200")
	c.files["README.md"] = "# sample, changed\n"
	put("README.md", c.files["README.md"])
	second, held := fetchBucket(t, c.store, c.source)
	if second == first {
		t.Error("a changed object has the same revision")
	}
	wantFiles(t, held, c.files)
	wantRequests(t, c.proxy, "GET list 200", "GET "+c.pathPrefix+"README.md 200")
	return second
}

// multipart uploads an object in two parts and returns its content. The ETag of such an object is
// not a digest of the content.
func (s *objectStore) multipart(bucket, key string) string {
	s.t.Helper()
	content := make([]byte, 6<<20)
	rand.NewChaCha8([32]byte{1}).Read(content)
	info, err := s.PutObject(s.t.Context(), bucket, key, bytes.NewReader(content), int64(len(content)), minio.PutObjectOptions{PartSize: 5 << 20})
	must(s.t, err)
	if !strings.HasSuffix(info.ETag, "-2") {
		s.t.Fatalf("the ETag of two parts is %s", info.ETag)
	}
	return string(content)
}

// TestBucketKeys fetches unusual keys from MinIO, with a prefix and with ignore rules.
func TestBucketKeys(t *testing.T) {
	t.Parallel()
	s := minioServer{}.serve(t)
	const rules = "*.md\n"
	odd := stringMap{
		"a b/c  d.txt": "spaces", "plus+and%20percent%.txt": "signs", "ünï/日本語.txt": "unicode", "e\u0301.txt": "combining",
		"q?x=1&y#z.txt": "query", "quote\"'`<>.txt": "quotes", "~-_.!*(),;:@=$.txt": "punctuation", ".hidden/.file": "dots", "deep/a/b/c/d/e/f/g/h": "deep",
		strings.Repeat("l", 200) + ".txt": "long", "empty": "",
	}
	s.bucket("odd", odd)
	s.put("odd", "marker/", "") // a directory marker
	s.bucket("rules", stringMap{"app/keep.yaml": "1", "app/drop.md": "2", "app/.sourceignore": "keep.yaml", "other/x.yaml": "3", "application.yaml": "4", ".sourceignore": rules})
	front := newStoreProxy(t, s.addr)
	at := func(bucket string) bucketSource { return bucketAt(front.addr, bucket).secret("secretRef", rootKeys) }
	for _, c := range []struct {
		name   string
		source bucketSource
		want   stringMap
	}{
		{"odd", at("odd"), odd},
		{"ignored at the root", at("rules"), stringMap{"app/keep.yaml": "1", "app/.sourceignore": "keep.yaml", "other/x.yaml": "3", "application.yaml": "4", ".sourceignore": rules}},
		{"prefix", at("rules").with("prefix", "app/"), stringMap{"app/keep.yaml": "1", "app/.sourceignore": "keep.yaml", ".sourceignore": rules}},
		{"prefix that is no directory", at("rules").with("prefix", "app"), stringMap{"app/keep.yaml": "1", "app/.sourceignore": "keep.yaml", "application.yaml": "4", ".sourceignore": rules}},
		{"spec.ignore", at("rules").with("ignore", "app/\n!app/*.md\n"), stringMap{"app/drop.md": "2", "other/x.yaml": "3", "application.yaml": "4", ".sourceignore": rules}},
		{"all is ignored", at("rules").with("ignore", "*"), stringMap{".sourceignore": rules}},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := t.TempDir()
			first, held := fetchBucket(t, store, c.source)
			wantFiles(t, held, c.want)
			front.takeRequests()
			if again, _ := fetchBucket(t, store, c.source); again != first {
				t.Errorf("what is unchanged was %s and is %s", first, again)
			}
			for _, asked := range front.takeRequests() {
				if asked != "GET list 200" && asked != "GET /rules/.sourceignore 200" {
					t.Errorf("for what is unchanged the store was asked %q", asked)
				}
			}
		})
	}
}

// TestBucketVersions fetches from a bucket with versioning and delete markers.
func TestBucketVersions(t *testing.T) {
	t.Parallel()
	s := minioServer{}.serve(t)
	s.bucket("app", nil)
	must(t, s.EnableVersioning(t.Context(), "app"))
	for _, text := range []string{"1", "22", "333"} {
		s.put("app", "kept", text)
	}
	s.put("app", "deleted", "1")
	must(t, s.RemoveObject(t.Context(), "app", "deleted", minio.RemoveObjectOptions{}))
	source, store := bucketAt(s.addr, "app").secret("secretRef", rootKeys), t.TempDir()
	first, held := fetchBucket(t, store, source)
	wantFiles(t, held, stringMap{"kept": "333"})
	s.put("app", "kept", "333")
	if again, _ := fetchBucket(t, store, source); again != first {
		t.Errorf("a new version of the same content had %s and has %s", first, again)
	}
	s.put("app", "kept", "4444")
	_, held = fetchBucket(t, store, source)
	wantFiles(t, held, stringMap{"kept": "4444"})
}

// TestBucketMoves changes or deletes objects after they were listed and before they are read.
func TestBucketMoves(t *testing.T) {
	t.Parallel()
	s := minioServer{}.serve(t)
	for name, c := range map[string]struct {
		move func(bucket string)
		want stringMap
	}{
		"both-changed": {func(bucket string) { s.put(bucket, "b", "new"); s.put(bucket, "a", "new") }, stringMap{"a": "new", "b": "new"}},
		"deleted": {func(bucket string) {
			must(t, s.RemoveObject(t.Context(), bucket, "b", minio.RemoveObjectOptions{}))
		}, stringMap{"a": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s.bucket(name, stringMap{"a": "1", "b": "2"})
			store := t.TempDir()
			host := newReadHookProxy(t, s.addr, func() { c.move(name) })
			_, held := fetchBucket(t, store, bucketAt(host, name).secret("secretRef", rootKeys))
			wantFiles(t, held, c.want)
		})
	}
}

// newReadHookProxy returns the address of a proxy that calls happen before the first object is read.
func newReadHookProxy(t *testing.T, addr string, happen func()) string {
	t.Helper()
	var once sync.Once
	return startReverseProxy(t, "http://"+addr, func(store *httputil.ReverseProxy) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !r.URL.Query().Has("list-type") {
				once.Do(happen)
			}
			store.ServeHTTP(w, r)
		})
	}).Listener.Addr().String()
}
