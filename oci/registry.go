package oci

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// A server is a repository of a registry (distribution specification 1.1). It does not
// use oras-go for reading, because oras-go requires lengths, types and digests that some
// registries do not send, and decodes lists without a limit. It uses oras-go for uploads.
type server struct {
	auth *authTransport
	base *url.URL           // /v2/PATH/
	name registry.Reference // the repository in token scopes
	oras *remote.Repository // for uploads
}

func newServer(at registry.Reference, t *authTransport) *server {
	s := &server{
		auth: t,
		base: t.registry.ResolveReference(&url.URL{Path: "/v2/" + at.Repository + "/"}),
		name: registry.Reference{Registry: t.registry.Host, Repository: at.Repository},
	}
	s.oras = &remote.Repository{
		Client: s, Reference: s.name, PlainHTTP: t.registry.Scheme == "http",
		MaxMetadataBytes: maxManifest, SkipReferrersGC: true,
	}
	return s
}

// manifestTypes are the media types of manifests in the header Accept.
var manifestTypes = strings.Join([]string{
	ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex, dockerManifest, dockerIndex, ociArtifact,
}, ", ")

// at returns the URL of an endpoint of the repository.
func (s *server) at(endpoint string, query url.Values) *url.URL {
	return s.base.ResolveReference(&url.URL{Path: s.base.Path + endpoint, RawQuery: query.Encode()})
}

// successStatus maps methods to their success status.
var successStatus = map[string]int{
	http.MethodHead: http.StatusOK, http.MethodGet: http.StatusOK, http.MethodPost: http.StatusAccepted, http.MethodPut: http.StatusCreated,
}

// Do implements [remote.Client]. A refusal is returned as a [StatusError], except status
// 404 for GET, by which oras-go detects whether there is a list of referrers.
func (s *server) Do(req *http.Request) (*http.Response, error) {
	resp, err := s.auth.Do(req)
	if err != nil {
		return nil, bare(err)
	}
	probe := req.Method == http.MethodGet && resp.StatusCode == http.StatusNotFound
	if resp.StatusCode != successStatus[req.Method] && !probe {
		return nil, s.auth.refusalError(resp, false)
	}
	return resp, nil
}

// request sends a request without a body. The status of the returned response is 200; the
// caller closes its body.
func (s *server) request(ctx context.Context, method string, u *url.URL, accept string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(auth.AppendRepositoryScope(ctx, s.name, auth.ActionPull), method, u.String(), nil)
	if err != nil {
		return nil, err
	}
	// Otherwise the transport requests gzip, and the size of the decompressed body is unknown.
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("Accept", accept)
	resp, err := s.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		return nil, s.auth.refusalError(resp, false)
	}
	return resp, err
}

// hasStatus reports whether err is a response with one of these statuses.
func hasStatus(err error, statuses ...int) bool {
	e, ok := errors.AsType[*StatusError](err)
	return ok && slices.Contains(statuses, e.Status)
}

// noHeadStatuses are the statuses of registries that do not support HEAD, and of servers of
// other protocols, whose responses to GET are more informative.
var noHeadStatuses = []int{http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotImplemented}

func (s *server) head(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	resp, err := s.request(ctx, http.MethodHead, s.at("manifests/"+reference, nil), manifestTypes)
	if hasStatus(err, noHeadStatuses...) {
		return ocispec.Descriptor{}, errNoHead
	}
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	resp.Body.Close()
	d := digest.Digest(resp.Header.Get("Docker-Content-Digest"))
	if d == "" {
		return ocispec.Descriptor{}, errNoHead
	}
	if err := checkDigest(d); err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("header Docker-Content-Digest: %w", err)
	}
	return ocispec.Descriptor{MediaType: mediaType(resp), Digest: d, Size: max(resp.ContentLength, 0)}, nil
}

func (s *server) manifest(ctx context.Context, reference string) (string, []byte, error) {
	resp, err := s.request(ctx, http.MethodGet, s.at("manifests/"+reference, nil), manifestTypes)
	if err != nil {
		return "", nil, err
	}
	defer resp.Body.Close()
	content, err := readAll(resp.Body, maxManifest)
	return mediaType(resp), content, err
}

// mediaType returns the media type of a response without parameters, or "" if it is
// missing or not valid in a descriptor.
func mediaType(resp *http.Response) string {
	t, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || len(t) > 255 {
		return ""
	}
	return t
}

func (s *server) blob(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	resp, err := s.request(ctx, http.MethodGet, s.at("blobs/"+d.Digest.String(), nil), "*/*")
	if err != nil {
		return nil, err
	}
	if resp.ContentLength >= 0 && resp.ContentLength != d.Size {
		resp.Body.Close()
		return nil, wrongSize(d, resp.ContentLength)
	}
	return resp.Body, nil
}

func (s *server) close() { s.auth.client.CloseIdleConnections() }

// Bounds of lists.
const (
	maxTags      = 100_000
	maxReferrers = 10_000
	pageSize     = 1000     // entries that are requested; registries may send fewer
	maxPages     = 2000     // pages of one list
	maxList      = 64 << 20 // bytes of all pages of a list
	maxLink      = 8 << 10  // bytes of the URL of a page
)

func (s *server) tags(ctx context.Context) (all []string, err error) {
	first := s.at("tags/list", url.Values{"n": {strconv.Itoa(pageSize)}})
	err = s.pages(ctx, first, "application/json", func(page []byte) error {
		var list struct{ Tags []string }
		if err := json.Unmarshal(page, &list); err != nil {
			return fmt.Errorf("it is no list: %w", err)
		}
		if all = append(all, list.Tags...); len(all) > maxTags {
			return fmt.Errorf("there are more than %d", maxTags)
		}
		return nil
	})
	return all, err
}

// noReferrersStatuses are the statuses of registries that have no list of referrers.
var noReferrersStatuses = []int{http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented}

func (s *server) referrers(ctx context.Context, subject digest.Digest, artifactType string) (all descriptors, err error) {
	query := url.Values{}
	if artifactType != "" {
		query.Set("artifactType", artifactType)
	}
	err = s.pages(ctx, s.at("referrers/"+subject.String(), query), ocispec.MediaTypeImageIndex, func(page []byte) error {
		var index struct{ Manifests descriptors }
		if err := json.Unmarshal(page, &index); err != nil {
			return fmt.Errorf("it is no list: %w", err)
		}
		if all = append(all, index.Manifests...); len(all) > maxReferrers {
			return fmt.Errorf("there are more than %d", maxReferrers)
		}
		return nil
	})
	if hasStatus(err, noReferrersStatuses...) {
		err = errNoReferrers
	}
	return all, err
}

// pages calls use with each page of a list, following the links (RFC 8288).
func (s *server) pages(ctx context.Context, next *url.URL, accept string, use func(page []byte) error) error {
	seen, total := map[string]bool{}, 0
	for next != nil {
		switch at := next.String(); {
		case seen[at]:
			return fmt.Errorf("page %d is one that was there before: the list has no end", len(seen)+1)
		case len(seen) == maxPages:
			return fmt.Errorf("the list has more than %d pages", maxPages)
		default:
			seen[at] = true
		}
		resp, err := s.request(ctx, http.MethodGet, next, accept)
		if err != nil {
			return err
		}
		page, err := readAll(resp.Body, maxManifest)
		resp.Body.Close()
		if accept == ocispec.MediaTypeImageIndex && mediaType(resp) != accept {
			return errNoReferrers // some other page, with status 200
		}
		if err != nil {
			return fmt.Errorf("page %s: %w", next.Path, err)
		}
		if total += len(page); total > maxList {
			return fmt.Errorf("the list has more than %d bytes", maxList)
		}
		if err := use(page); err != nil {
			return err
		}
		if next, err = nextPage(resp.Request.URL, resp.Header); err != nil { // relative to the URL after redirects
			return err
		}
	}
	return nil
}

// nextLink matches a link with the relation next. A link without
// a relation matches too, because old registries send it.
var nextLink = regexp.MustCompile(`<([^<>]+)>(?:\s*;\s*(?i:rel="?next"?))?\s*(?:,|$)`)

// nextPage returns the URL of the next page from the header Link, or nil if there is none.
func nextPage(at *url.URL, header http.Header) (*url.URL, error) {
	found := nextLink.FindStringSubmatch(strings.Join(header.Values("Link"), ","))
	if found == nil {
		return nil, nil
	}
	if len(found[1]) > maxLink {
		return nil, fmt.Errorf("header Link: its URL has %d bytes, at most %d are allowed", len(found[1]), maxLink)
	}
	next, err := at.Parse(found[1])
	if err != nil {
		return nil, fmt.Errorf("header Link: %.100q is no URL", found[1])
	}
	if next.User != nil || !transport.SameOrigin(at, next) {
		return nil, fmt.Errorf("header Link: the list goes on at %s, which is not the registry it began at", redact.URL(next))
	}
	next.Fragment = ""
	return next, nil
}

func (s *server) push(ctx context.Context, d ocispec.Descriptor, content io.Reader) error {
	ctx = auth.AppendRepositoryScope(ctx, s.name, auth.ActionPull, auth.ActionPush)
	kind := "blobs/"
	if forms[d.MediaType] != 0 {
		kind = "manifests/"
	}
	resp, err := s.request(ctx, http.MethodHead, s.at(kind+d.Digest.String(), nil), manifestTypes)
	if err == nil {
		return resp.Body.Close() // the repository has d
	}
	if !hasStatus(err, http.StatusNotFound) && !hasStatus(err, noHeadStatuses...) {
		return err
	}
	if kind == "blobs/" {
		body := io.NopCloser(content) // net/http checks its length
		if r, ok := content.(*io.SectionReader); ok {
			body = uploadBody{r}
		}
		return bare(s.oras.Blobs().Push(ctx, d, body))
	}
	text, err := readAll(content, maxManifest)
	if err != nil {
		return err
	}
	if got := d.Digest.Algorithm().FromBytes(text); got != d.Digest {
		return wrongDigest(d.Digest, got)
	}
	return bare(s.oras.Manifests().Push(ctx, d, bytes.NewReader(text)))
}

func (s *server) tag(ctx context.Context, d ocispec.Descriptor, tag string) error {
	ctx = auth.AppendRepositoryScope(ctx, s.name, auth.ActionPull, auth.ActionPush)
	d, text, err := readManifest(ctx, s, d.Digest.String(), d)
	if err != nil {
		return err
	}
	return bare(s.oras.PushReference(ctx, d, bytes.NewReader(text), tag))
}

// A uploadBody (An) is the body of an upload that can be retried, even while the
// first attempt still reads it.
type uploadBody struct{ *io.SectionReader }

func (uploadBody) Close() error { return nil }

func (s uploadBody) reopen() (io.ReadCloser, error) {
	return uploadBody{io.NewSectionReader(s.SectionReader, 0, s.Size())}, nil
}

// A StatusError is a response of a registry, or of its token service, that
// refuses a request. It satisfies [fs.ErrNotExist] for status 404 and
// [fs.ErrPermission] for 401 and 403.
type StatusError struct {
	Method  string
	URL     string // without user information and query
	Status  int
	Code    string        // of the first error in the response, for example DENIED
	Message string        // of that error, at most 256 bytes
	After   time.Duration // the server's Retry-After; 0 if it sent none
	Hint    string        // what the user can do, "" if unknown
}

const (
	maxErrorBody = 16 << 10
	maxMessage   = 256
)

func (e *StatusError) Error() string {
	text := []string{fmt.Sprintf("%s %s: %d %s", e.Method, e.URL, e.Status, http.StatusText(e.Status))}
	for _, part := range []string{e.Code, e.Message, e.Hint} {
		if part != "" {
			text = append(text, part)
		}
	}
	if e.After > 0 {
		text = append(text, fmt.Sprintf("try again in %s", e.After))
	}
	return strings.Join(text, ": ")
}

// Is makes e match errors of io/fs.
func (e *StatusError) Is(target error) bool {
	switch target {
	case fs.ErrNotExist:
		return e.Status == http.StatusNotFound
	case fs.ErrPermission:
		return e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden
	}
	return false
}

// RetryAfter returns the time that the [source.Reconciler] must wait before it retries.
func (e *StatusError) RetryAfter() time.Duration { return e.After }

const (
	hintTLS   = "the registry speaks TLS: remove spec.insecure"
	hintNoTLS = "the registry speaks no TLS: set spec.insecure if that is meant to be"
)

// plain redacts and shortens a server's text for a message. It cuts after redacting, and
// between words, because a part of a secret would not be recognized and redacted.
func plain(text string, secrets ...string) string {
	if text = redact.String(text, secrets...); len(text) <= maxMessage {
		return text
	}
	return text[:max(strings.LastIndexByte(text[:maxMessage+1], ' '), 0)] + "..."
}

// bare replaces the URL in an error of an [http.Client] by a redacted one, because the
// URLs of storage hosts contain signatures.
func bare(err error) error {
	e, ok := err.(*url.Error)
	if !ok {
		return err
	}
	at := "the address of a redirect"
	if u, parse := url.Parse(e.URL); parse == nil {
		at = redact.URL(u)
	}
	return fmt.Errorf("%s %s: %w", strings.ToUpper(e.Op), at, addHint(e.Err))
}

// addHint adds a hint for the user to an error of the connection if there is one.
func addHint(err error) error {
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%w: %s", err, hintNoTLS)
	case strings.Contains(err.Error(), `malformed HTTP response "\x15\x03`): // a TLS alert
		return fmt.Errorf("%w: %s", err, hintTLS)
	}
	return err
}

// listFailed is the reason when no tag can be chosen (reference A2).
const listFailed = "ReadOperationFailed"

// authRefused reports whether the reason of err is AuthenticationFailed, in any step.
func authRefused(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	return ok && errors.Is(status, fs.ErrPermission) || is[*RealmError](err) || transport.IsAuthFailure(err)
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// stepError wraps err in a [*source.StepError] with the reason of the condition. It returns
// err unchanged if that already is one.
func stepError(step source.Step, reason string, err error) error {
	if is[*source.StepError](err) {
		return err
	}
	if authRefused(err) {
		reason = "AuthenticationFailed"
	}
	return &source.StepError{Step: step, Reason: reason, Err: err}
}

// invalid marks err as a defect of the spec: the object stalls until it changes.
func invalid(err error) error { return fmt.Errorf("%w: %w", source.ErrInvalid, err) }

// A notFound error says that nothing selected exists. It satisfies fs.ErrNotExist.
type notFound string

func (e notFound) Error() string        { return string(e) }
func (e notFound) Is(target error) bool { return target == fs.ErrNotExist }
