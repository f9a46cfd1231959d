// Package gcs reads buckets of Google Cloud Storage (provider gcp), and of other stores
// that implement its JSON API (reference A10).
//
// # Endpoint
//
// spec.endpoint is HOST, HOST:PORT or a URL; /storage/v1/ is appended unless it ends in
// that. Google's is storage.googleapis.com.
//
// # Credentials
//
// The key serviceaccount of spec.secretRef is the JSON key of a service account (type
// service_account). Files of other types are refused, because they name servers to
// contact and programs to run. The key is exchanged for an access token with the scope
// devstorage.read_only at its token_uri (RFC 7523), which must be an https URL; with
// spec.insecure it may be http on loopback. That server receives an assertion that is
// valid only at that token_uri.
//
// Without spec.secretRef the identity of the program is used, but only for hosts of
// Google Cloud and over TLS. Without an identity, and for other endpoints, requests are
// anonymous, which is enough for public buckets. If spec.serviceAccountName is set,
// requests are never anonymous.
//
// Tokens are used for 80 % of their lifetime. If the store refuses a token, the request
// is retried once with a new one.
//
// # Objects
//
// An object is read with its generation as a precondition, in one request, and as it is
// stored: objects with the content encoding gzip are not decompressed. The response
// must have that generation and the listed size. An object that is read from its
// beginning must match the CRC-32C that the store announces, or reading fails at its
// end. The ETag is that of the listing, which also changes with the object's metadata.
//
// The driver takes neither credentials nor servers from the environment or a metadata
// server, logs nothing, and sends no information about this machine.
package gcs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/storage"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/jwt"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

const apiPath = "/storage/v1"

// Connect is a [bucket.Provider].
func Connect(ctx context.Context, a *bucket.Access) (bucket.Driver, error) {
	endpoint, _, err := a.Endpoint()
	if err != nil {
		return nil, err
	}
	tokens, err := identify(ctx, a, endpoint)
	if err != nil {
		return nil, err
	}
	client := *a.Client(endpoint, a.Transport)
	d := &driver{access: a, next: client.Transport}
	guard := &bucket.Guard{Access: a, Send: d.send, Page: d.checkPage, PageBytes: maxPage, Token: "pageToken", Object: d.checkObject, Hints: hints, Anonymous: anonymousHint}
	if tokens != nil {
		guard.Anonymous, d.next = "", &bucket.Bearer{Next: d.next, Tokens: tokens}
	}
	client.Transport = guard
	sdk, err := storage.NewClient(ctx, option.WithHTTPClient(&client), option.WithoutAuthentication(), // bucket.Bearer adds the credentials
		option.WithEndpoint(api(endpoint)), storage.WithJSONReads(), option.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, bucket.Failed("InvalidProviderConfiguration", errors.New(a.CleanText(err.Error())))
	}
	sdk.SetRetry(storage.WithPolicy(storage.RetryNever)) // our client retries
	d.bucket = sdk.Bucket(a.Spec.BucketName)
	return d, nil
}

// api returns the URL of the JSON API at endpoint.
func api(endpoint *url.URL) string {
	u := *endpoint
	if !strings.HasSuffix(u.Path, apiPath) {
		u.Path, u.RawPath = u.Path+apiPath, ""
	}
	return u.String() + "/"
}

const pageSize = 1000 // objects, the maximum of Cloud Storage

// A driver reads one bucket.
type driver struct {
	bucket *storage.BucketHandle
	access *bucket.Access
	next   http.RoundTripper
}

// List implements [bucket.Driver].
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[bucket.Object, error] {
	return func(yield func(bucket.Object, error) bool) {
		query := &storage.Query{Prefix: prefix, Projection: storage.ProjectionNoACL}
		err := query.SetAttrSelection([]string{"Name", "Etag", "Size", "Generation"})
		requests, c := d.access.Listing(ctx)
		it := d.bucket.Objects(requests, query)
		it.PageInfo().MaxSize = pageSize
		for err == nil {
			var a *storage.ObjectAttrs
			switch a, err = it.Next(); {
			case err != nil:
			case a.Name == "" || a.Size < 0 || a.Generation <= 0:
				err = errors.New("the answer lists an object without a name, a size or a generation")
			case !yield(bucket.Object{Key: a.Name, ETag: bucket.ETag(a.Etag), Size: a.Size, Version: strconv.FormatInt(a.Generation, 10)}, nil):
				return
			}
		}
		if err != iterator.Done {
			yield(bucket.Object{}, c.Failed(ctx, err))
		}
	}
}

// Open implements [bucket.Driver].
func (d *driver) Open(ctx context.Context, o bucket.Object, offset int64) (io.ReadCloser, error) {
	request, c := d.access.Reading(ctx, o, offset)
	generation, err := strconv.ParseInt(o.Version, 10, 64)
	switch {
	case err != nil:
		return nil, c.Failed(ctx, errors.New("it was not listed"))
	case offset > 0 && offset >= o.Size:
		return http.NoBody, nil
	}
	r, err := d.bucket.Object(o.Key).If(storage.Conditions{GenerationMatch: generation}).NewRangeReader(request, offset, -1)
	if err != nil {
		return nil, c.Failed(ctx, err)
	}
	return &body{r, c, ctx}, nil
}

// A body is the content of an object. At its end the SDK verifies the checksum that the
// store announced.
type body struct {
	io.ReadCloser
	call *bucket.Call
	ctx  context.Context
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = b.call.Failed(b.ctx, err)
	}
	return n, err
}

const maxPage = 8 << 20 // bytes of a page: 1000 names of 1024 escaped bytes, and more

var errNoListing = errors.New("the answer is no listing: check spec.endpoint")

// hints tell the user what to do about a refusal, by its status.
var hints = map[string]string{
	"401": "check that the service account and its key were not deleted",
	"403": "grant the identity the role roles/storage.objectViewer on the bucket",
	"429": "fetch less often: raise spec.interval",
}

const anonymousHint = "the request was anonymous: set spec.secretRef to a Secret with serviceaccount, or run where there is an identity of Google Cloud"

// send sends a request of the SDK. It replaces the header, except for Range. It requests
// pages with the field kind, and objects as they are stored.
func (d *driver) send(req *http.Request, c *bucket.Call) (*http.Response, error) {
	part := req.Header.Get("Range")
	req.Header = http.Header{"User-Agent": {"headgate"}}
	if c.Object == nil {
		req.Header.Set("User-Agent", "headgate (gzip)") // Google compresses listings for such names only
		values := req.URL.Query()
		values.Set("fields", "kind,"+values.Get("fields"))
		req.URL.RawQuery = values.Encode()
		return d.next.RoundTrip(req)
	}
	req.Header.Set("Accept-Encoding", "gzip")
	if part != "" {
		req.Header.Set("Range", part)
	}
	return d.next.RoundTrip(req)
}

// checkPage checks a page before the SDK decodes it, because the SDK allocates kilobytes
// for each item. It returns a page with the checked fields only.
func (d *driver) checkPage(_ *http.Response, text []byte) ([]byte, error) {
	var page struct {
		Kind  string                        `json:"kind"`
		Next  string                        `json:"nextPageToken"`
		Items [pageSize + 1]json.RawMessage `json:"items"` // json drops further items
	}
	if err := json.Unmarshal(text, &page); err != nil || page.Kind != "storage#objects" { // anything else would be an empty bucket
		return nil, errNoListing
	}
	if page.Items[pageSize] != nil {
		return nil, fmt.Errorf("the answer lists more than the %d objects that were asked for", pageSize)
	}
	var checked []item
	for _, text := range page.Items {
		if text == nil {
			break
		}
		var i item
		if err := json.Unmarshal(text, &i); err != nil {
			return nil, errNoListing
		}
		checked = append(checked, i)
	}
	return json.Marshal(map[string]any{"kind": page.Kind, "nextPageToken": page.Next, "items": checked})
}

// An item is an object as it is listed. Its numbers are strings.
type item struct {
	Name       string `json:"name"`
	ETag       string `json:"etag"`
	Size       string `json:"size"`
	Generation string `json:"generation"`
}

// checkObject returns an error if a response is not the requested object. The ETag also
// changes with the metadata, so it is compared only if the response has no generation.
func (d *driver) checkObject(resp *http.Response, c *bucket.Call) error {
	clone, o := *resp, *c.Object
	clone.Header = resp.Header.Clone()
	resp.ContentLength = o.Size - c.Offset // the SDK logs a warning if the response is longer
	generation := resp.Header.Get("X-Goog-Generation")
	stored, sent := resp.Header.Get("X-Goog-Stored-Content-Encoding"), cmp.Or(resp.Header.Get("Content-Encoding"), "identity")
	switch {
	case generation != "" && generation != o.Version:
		return fmt.Errorf("%w: its generation was %s, and is %q", bucket.ErrChanged, o.Version, d.access.CleanText(generation))
	case stored != "" && !strings.EqualFold(stored, sent):
		return fmt.Errorf("it is stored with the content encoding %q and was sent with %q", d.access.CleanText(stored), d.access.CleanText(sent))
	case generation != "" || resp.Header.Get("ETag") == "":
		clone.Header.Set("ETag", o.ETag)
	}
	return d.access.CheckPart(&clone, o, c.Offset)
}

const (
	scope      = "https://www.googleapis.com/auth/devstorage.read_only"
	secretKey  = "serviceaccount" // key of a Secret that holds the key of a service account
	maxKeyFile = 16 << 10         // bytes; it bounds the time that a signature takes
	maxLife    = time.Hour        // of a token
)

// identify returns the tokens for reading the bucket, or nil if requests are
// anonymous. Errors are *[source.StepError], and wrap [source.ErrInvalid] if
// the spec is at fault.
func identify(ctx context.Context, a *bucket.Access, endpoint *url.URL) (*bucket.CredentialCache, error) {
	host := strings.ToLower(endpoint.Hostname())
	switch {
	case a.Secret.Name != "":
		config, at, err := readKey(a.Secret.Data[secretKey], a.Spec.Insecure)
		if err != nil {
			return nil, bucket.Failed("AuthenticationFailed", fmt.Errorf("spec.secretRef: %w", &transport.SecretError{Secret: a.Secret.Name, Key: secretKey, Problem: err.Error()}))
		}
		return bucket.NewCredentialCache(ctx, exchange(a, config, at, endpoint))
	// The login decides to which hosts of these domains it issues a token.
	case a.Spec.ServiceAccountName == "" && !strings.HasSuffix(host, ".googleapis.com") && !strings.HasSuffix(host, ".s3nsapis.fr"):
		return nil, nil
	case endpoint.Scheme != "https":
		return nil, bucket.Failed("InvalidProviderConfiguration", fmt.Errorf("%w: spec.insecure: the identity of this program is not sent in the clear: "+
			"remove it, or set spec.secretRef", source.ErrInvalid))
	}
	at := &url.URL{Scheme: "gs", Host: endpoint.Host, Path: "/" + a.Spec.BucketName}
	return a.Identity(ctx, at)
}

// readKey parses the JSON key file of a service account, and returns the configuration
// and the URL of its token service. insecure allows a token service on loopback
// without TLS. Errors contain no value of the file except its type.
func readKey(text []byte, insecure bool) (*jwt.Config, *url.URL, error) {
	var k struct {
		Type     string `json:"type"`
		Email    string `json:"client_email"`
		ID       string `json:"private_key_id"`
		Private  string `json:"private_key"`
		TokenURI string `json:"token_uri"`
		Universe string `json:"universe_domain"`
	}
	switch {
	case len(text) == 0:
		return nil, nil, errors.New("is missing: it is the JSON key of a service account")
	case len(text) > maxKeyFile:
		return nil, nil, fmt.Errorf("has %d bytes, at most %d are allowed", len(text), maxKeyFile)
	case json.Unmarshal(text, &k) != nil: // the error would show values
		return nil, nil, errors.New("is not JSON: it is the JSON key of a service account")
	case k.Type != "service_account": // files of other types name servers and programs
		return nil, nil, fmt.Errorf("has the type %.40q: only service_account is accepted; without secretRef the identity of this program is used", k.Type)
	case k.Email == "":
		return nil, nil, errors.New("has no client_email: download the key again")
	}
	uri := cmp.Or(k.TokenURI, "https://oauth2."+cmp.Or(k.Universe, "googleapis.com")+"/token")
	u, err := url.Parse(uri)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Scheme != "https" && !(u.Scheme == "http" && insecure && isLoopback(u.Hostname())) {
		return nil, nil, errors.New("has a token_uri that is not an https URL: http is for loopback, with spec.insecure")
	}
	return &jwt.Config{Email: k.Email, PrivateKey: []byte(k.Private), PrivateKeyID: k.ID, Scopes: []string{scope}, TokenURL: uri, Audience: uri}, u, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// exchange returns a function that requests a token from the token service at the URL at
// (RFC 7523 section 2.1). Its errors are *[source.StepError] with the reason AuthenticationFailed.
func exchange(a *bucket.Access, config *jwt.Config, at, endpoint *url.URL) func(context.Context) (source.Credential, error) {
	clientConfig := a.Transport
	if clientConfig.TLS != nil && !transport.SameOrigin(at, endpoint) { // the client certificate is for the endpoint
		clientConfig.TLS = clientConfig.TLS.Clone()
		clientConfig.TLS.Certificates, clientConfig.TLS.GetClientCertificate = nil, nil
	}
	client := a.Client(at, clientConfig)
	return func(ctx context.Context) (source.Credential, error) {
		s := a.TokenService(ctx, client, "check that the key was not deleted, and the clock of this machine")
		token, err := config.TokenSource(context.WithValue(ctx, oauth2.HTTPClient, s.Client())).Token()
		if err != nil {
			return source.Credential{}, s.Failed("exchange the key of the service account for a token", err)
		}
		a.SecretReader.Conceal(token.AccessToken)
		c := source.Credential{Token: token.AccessToken, Expires: token.Expiry}
		if end := time.Now().Add(maxLife); c.Expires.After(end) {
			c.Expires = end
		}
		return c, nil
	}
}
