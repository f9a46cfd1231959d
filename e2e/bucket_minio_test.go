package e2e

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/headgate-io/headgate/internal/testenv"
)

// root are the keys of the stores of S3 here.
var root = keys{"accesskey": "headgate-root", "secretkey": "canary-root-secret"}

// A minioServer is how MinIO is served.
type minioServer struct {
	ca     *testenv.CA // nil: plain HTTP
	region string
	env    []string
}

// An objectStore is a store that speaks S3, and how tests write to it.
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
		web, scheme = trusting(s.ca), "https"
	}
	cmd := exec.Command(tool(t, "minio"), append(args, filepath.Join(dir, "data"))...)
	cmd.Env = append([]string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "MINIO_ROOT_USER=" + root["accesskey"], "MINIO_ROOT_PASSWORD=" + root["secretkey"],
		"MINIO_BROWSER=off", "MINIO_UPDATE=off", "MINIO_SITE_REGION=" + s.region}, s.env...)
	start(t, cmd)
	awaitOK(t, &http.Client{Transport: web}, scheme+"://"+addr+"/minio/health/ready")
	return newObjectStore(t, addr, s.region, web, s.ca != nil)
}

// serveVersity starts versitygw over a directory, in which files are objects.
func serveVersity(t *testing.T) *objectStore {
	t.Helper()
	addr, _ := freeAddr(t)
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	check(t, os.Mkdir(data, 0o755))
	cmd := exec.Command(tool(t, "versitygw"), "--port", addr, "--iam-dir", dir, "--health", "/health", "posix", data)
	cmd.Env = []string{"ROOT_ACCESS_KEY=" + root["accesskey"], "ROOT_SECRET_KEY=" + root["secretkey"], "HOME=" + dir}
	start(t, cmd)
	awaitOK(t, http.DefaultClient, "http://"+addr+"/health")
	return newObjectStore(t, addr, "us-east-1", http.DefaultTransport, false)
}

func newObjectStore(t *testing.T, addr, region string, web http.RoundTripper, secure bool) *objectStore {
	t.Helper()
	if region == "" {
		region = "us-east-1"
	}
	c, err := minio.New(addr, &minio.Options{Region: region, Transport: web, Secure: secure, Creds: credentials.NewStaticV4(root["accesskey"], root["secretkey"], "")})
	check(t, err)
	return &objectStore{t, addr, c}
}

// awaitOK returns once a server answers 200.
func awaitOK(t *testing.T, c *http.Client, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		if r, err := c.Get(url); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("%s is not ready", url)
		}
	}
}

// bucket makes a bucket with objects.
func (s *objectStore) bucket(name string, objects keys) {
	s.t.Helper()
	check(s.t, s.MakeBucket(s.t.Context(), name, minio.MakeBucketOptions{}))
	for key, text := range objects {
		s.put(name, key, text)
	}
}

// put writes an object.
func (s *objectStore) put(bucket, key, text string) {
	s.t.Helper()
	_, err := s.PutObject(s.t.Context(), bucket, key, strings.NewReader(text), int64(len(text)), minio.PutObjectOptions{})
	check(s.t, err)
}

// publish lets everyone list and read a bucket.
func (s *objectStore) publish(bucket string) {
	s.t.Helper()
	check(s.t, s.SetBucketPolicy(s.t.Context(), bucket, `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":["*"]},`+
		`"Action":["s3:ListBucket","s3:GetObject","s3:GetBucketLocation"],"Resource":["arn:aws:s3:::`+bucket+`","arn:aws:s3:::`+bucket+`/*"]}]}`))
}
