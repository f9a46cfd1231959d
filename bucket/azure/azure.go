// Package azure reads containers of Azure Blob Storage (provider azure) (reference
// A10).
//
// # Endpoint
//
// spec.endpoint is the URL of the storage account, in any cloud or emulator, and
// spec.bucketName is the container, which may be $root, $web or $logs. If the URL has a
// path, that is the name of the account, as with emulators:
// http://127.0.0.1:10000/ACCOUNT. Otherwise the account is the first label of the host.
// A query is a shared access signature.
//
// # Credentials
//
// The first of these that exists is used:
//
//   - spec.secretRef with an application (tenantId, clientId and clientSecret or
//     clientCertificate), a managed identity (clientId alone), the key of the account
//     (accountKey), or a shared access signature (sasKey), whose parameters replace
//     those in spec.endpoint
//   - the shared access signature in spec.endpoint
//   - the identity of the program, if it has one for that host, see package
//     source/login/azure; an identity that is refused is an error
//   - none: the container is public
//
// Bearer tokens are sent over TLS only, or to this machine: they are valid for every
// account that the identity may use, so spec.insecure does not apply to them. A managed
// identity belongs to the machine, so its tokens are sent only to Azure's own hosts
// with a certificate that the system trusts, or to this machine. authorityHost is used
// without asking the public cloud whether that authority is known. A token that expires
// or is refused during a request is replaced once.
//
// # Objects
//
//   - Only current blobs are listed: no snapshots, old versions or deleted blobs.
//   - Directories of hierarchical namespaces, and blobs that tools create as
//     directories (metadata hdi_isfolder), are directory markers.
//   - A blob is read as it is stored: Content-Encoding is not decoded.
//   - A blob of tier Archive cannot be read until it is rehydrated.
//
// # Limits
//
// A page of the listing has at most 16 MiB. Redirects are not followed.
package azure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	azcontainer "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// Connect is a [bucket.Provider].
func Connect(ctx context.Context, a *bucket.Access) (bucket.Driver, error) {
	at, err := containerOf(a)
	if err != nil {
		return nil, err
	}
	var keys transport.Azure
	if a.Secret.Name != "" {
		if keys, err = transport.AzureKeys(a.Secret.Name, a.Secret.Secret); err != nil {
			return nil, bucket.Failed("AuthenticationFailed", fmt.Errorf("spec.secretRef: %w", err))
		}
		a.SecretReader.Conceal(keys.Account)
		if keys.SAS == "" {
			at.query = nil // the Secret takes precedence
		} else if err := at.merge(keys.SAS, a); err != nil {
			return nil, bucket.Failed("AuthenticationFailed", fmt.Errorf("spec.secretRef: secret %s: %w", a.Secret.Name, err))
		}
	}
	tokens, err := identify(ctx, a, at, keys)
	if err != nil {
		return nil, err
	}
	client := *a.Client(at.server, a.Transport)
	next := client.Transport
	if tokens != nil {
		next = &bucket.Bearer{Next: next, Tokens: tokens}
	}
	guard := &bucket.Guard{Access: a, Page: checkPage, PageBytes: maxPage, Token: "marker", Hints: hints,
		Send: func(req *http.Request, _ *bucket.Call) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil {
				resp.Header.Del("X-Ms-Structured-Body") // the SDK would decode this framing, which was not requested
			}
			return resp, err
		}}
	if tokens == nil && keys.Account == "" && at.query == nil {
		guard.Anonymous = "no credentials were sent: name a Secret in spec.secretRef unless the container is public"
	}
	client.Transport = guard
	c, err := open(&client, at, keys)
	if err != nil {
		return nil, bucket.Failed("InvalidProviderConfiguration", errors.New(a.CleanText(err.Error())))
	}
	return &driver{container: c, access: a}, nil
}

// version is the version of the service's protocol: it has all the features used here,
// and is old enough for emulators and private clouds.
const version = "2021-12-02"

// open returns the client of a container. The SDK does not retry, sends no telemetry,
// and does not handle tokens.
func open(client *http.Client, at container, keys transport.Azure) (*azcontainer.Client, error) {
	o := &azcontainer.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport:       client,
		Retry:           policy.RetryOptions{MaxRetries: -1},
		Telemetry:       policy.TelemetryOptions{Disabled: true},
		PerCallPolicies: []policy.Policy{versionPolicy{}},
	}}
	if keys.Account == "" {
		return azcontainer.NewClientWithNoCredential(at.url(), o)
	}
	key, err := azcontainer.NewSharedKeyCredential(at.account, keys.Account)
	if err != nil {
		return nil, err
	}
	return azcontainer.NewClientWithSharedKeyCredential(at.url(), key, o)
}

// A versionPolicy sets the header x-ms-version of every request, before it is signed.
type versionPolicy struct{}

// Do implements [policy.Policy].
func (versionPolicy) Do(req *policy.Request) (*http.Response, error) {
	req.Raw().Header.Del("x-ms-version")
	req.Raw().Header["x-ms-version"] = []string{version}
	return req.Next()
}

// A container is a container of a storage account.
type container struct {
	server  *url.URL // of the account, without query
	account string
	name    string
	query   url.Values // a shared access signature, nil for none
	proxied bool       // requests leave this machine through a proxy, whatever the host
}

// containerForm matches names of containers. The length is checked separately.
var containerForm = regexp.MustCompile(`^(\$root|\$web|\$logs|[a-z0-9](-?[a-z0-9]){2,62})$`)

// containerOf returns the container that a.Spec names.
func containerOf(a *bucket.Access) (container, error) {
	server, query, err := a.Endpoint()
	if err != nil {
		return container{}, err
	}
	name := a.Spec.BucketName
	if !containerForm.MatchString(name) || len(name) > 63 {
		return container{}, bucket.Failed("InvalidProviderConfiguration", fmt.Errorf("%w: spec.bucketName is not the name of a container: "+
			"it has 3 to 63 lower case letters, digits and single hyphens", source.ErrInvalid))
	}
	at := container{server: server, name: name, account: accountOf(server), proxied: a.Transport.Proxied(server)}
	if query != "" {
		if err := at.merge(query, a); err != nil {
			return container{}, bucket.Failed("URLInvalid", fmt.Errorf("%w: spec.endpoint: %w", source.ErrInvalid, err))
		}
	}
	return at, nil
}

// accountOf returns the name of the account at u: the first element of its path if it has
// one, as with emulators, or the first label of the host.
func accountOf(u *url.URL) string {
	if name := strings.Trim(u.Path, "/"); name != "" {
		name, _, _ = strings.Cut(name, "/")
		return name
	}
	name, _, _ := strings.Cut(u.Hostname(), ".")
	return name
}

// parameterForm matches names of parameters.
var parameterForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)

// reservedParameters are the query parameters of requests, which must not be in a shared access signature.
var reservedParameters = map[string]bool{"comp": true, "restype": true, "prefix": true, "marker": true, "maxresults": true, "include": true,
	"delimiter": true, "snapshot": true, "versionid": true, "startfrom": true, "timeout": true, "showonly": true}

// merge adds the shared access signature in query to c.query; its parameters replace
// existing ones. It has the signature redacted in texts. The error contains no values of
// the query.
func (c *container) merge(query string, a *bucket.Access) error {
	a.ConcealQuery(query)
	params, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("the query cannot be parsed: copy the shared access signature as it is, from sv= to the end of sig=")
	}
	if c.query == nil {
		c.query = url.Values{}
	}
	for name, values := range params {
		switch {
		case reservedParameters[strings.ToLower(name)]:
			return fmt.Errorf("the query has %s, which is no part of a shared access signature: remove it", name)
		case !parameterForm.MatchString(name):
			return errors.New("the query is no shared access signature: copy that as it is, from sv= to the end of sig=, without the URL before it")
		}
		c.query[name] = values
	}
	return nil
}

// url returns the URL of the container, including the signature.
func (c *container) url() string {
	u := *c.server
	u.Path = strings.TrimRight(u.Path, "/") + "/" + c.name
	u.RawPath, u.RawQuery = "", c.query.Encode()
	return u.String()
}

// private reports whether no other machine can read requests to the account: they use
// TLS, or do not leave this machine.
func (c *container) private() bool { return c.server.Scheme == "https" || c.isLocal() }

// isLocal reports whether the account is on this machine.
func (c *container) isLocal() bool {
	ip, err := netip.ParseAddr(c.server.Hostname())
	return !c.proxied && (c.server.Hostname() == "localhost" || err == nil && ip.IsLoopback())
}

// azureHost matches hosts of accounts that Microsoft and its partners run.
var azureHost = regexp.MustCompile(`^[a-z0-9]{3,24}(?:-secondary)?\.(?:blob\.core\.(?:windows\.net|chinacloudapi\.cn|cloudapi\.de|usgovcloudapi\.net)|z[0-9]{1,2}\.blob\.storage\.azure\.net)$`)

// mayReceiveToken reports whether tokens of the machine's identity may be sent to the account,
// although the author of the object may not own that identity: the host is Azure's
// and has a certificate that the system trusts, or the account is on this machine.
func (c *container) mayReceiveToken(a *bucket.Access) bool {
	return c.isLocal() || c.server.Scheme == "https" && a.Transport.TLS == nil && azureHost.MatchString(strings.ToLower(c.server.Hostname()))
}

// A driver reads one container.
type driver struct {
	container *azcontainer.Client
	access    *bucket.Access
}

// pageSize is the number of blobs per page. The SDK uses 13.6 KB for each blob, so
// pageSize is less than the 5000 that the service allows.
const pageSize = 1000

// List implements [bucket.Driver]: List Blobs, without a delimiter.
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[bucket.Object, error] {
	return func(yield func(bucket.Object, error) bool) {
		o := &azcontainer.ListBlobsFlatOptions{MaxResults: to.Ptr(int32(pageSize)), Include: azcontainer.ListBlobsInclude{Metadata: true},
			ResponseFormat: azcontainer.StorageResponseFormatXML}
		if prefix != "" {
			o.Prefix = &prefix
		}
		requests, c := d.access.Listing(ctx)
		for pages := d.container.NewListBlobsFlatPager(o); pages.More(); {
			page, err := pages.NextPage(requests)
			if err != nil {
				yield(bucket.Object{}, c.Failed(ctx, err))
				return
			}
			for _, item := range page.Segment.BlobItems { // the guard has checked that there is a segment
				if item.Snapshot != nil && *item.Snapshot != "" || item.Deleted != nil && *item.Deleted || item.IsCurrentVersion != nil && !*item.IsCurrentVersion {
					continue // not the current version of the blob
				}
				object, err := objectOf(item)
				if err = c.Failed(ctx, err); !yield(object, err) || err != nil {
					return
				}
			}
		}
	}
}

// objectOf converts a listed blob. A directory of a hierarchical namespace, and
// a blob that represents a directory, become directory markers.
func objectOf(item *azcontainer.BlobItem) (o bucket.Object, err error) {
	p := item.Properties
	if item.Name == nil || *item.Name == "" || p == nil || p.ETag == nil || p.ContentLength == nil || *p.ContentLength < 0 {
		return o, errors.New("the answer lists a blob without a name, an ETag or a size")
	}
	o.Key, o.ETag, o.Size = *item.Name, bucket.ETag(string(*p.ETag)), *p.ContentLength
	folder := p.ResourceType != nil && *p.ResourceType == "directory"
	for name, value := range item.Metadata {
		folder = folder || strings.EqualFold(name, "hdi_isfolder") && value != nil && strings.EqualFold(*value, "true")
	}
	if folder {
		o.Key = strings.TrimSuffix(o.Key, "/") + "/"
	}
	return o, nil
}

// Open implements [bucket.Driver]: Get Blob.
func (d *driver) Open(ctx context.Context, o bucket.Object, offset int64) (io.ReadCloser, error) {
	etag := azcore.ETag(`"` + o.ETag + `"`)
	request, c := d.access.Reading(ctx, o, offset)
	answer, err := d.container.NewBlobClient(o.Key).DownloadStream(request, &blob.DownloadStreamOptions{
		Range:            blob.HTTPRange{Offset: offset},
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &etag}},
	})
	return answer.Body, c.Failed(ctx, err)
}

const maxPage = 16 << 20 // bytes; enough for blobs with the longest names and metadata

var pages = bucket.XMLPage{Root: "EnumerationResults", Item: "Blob", Items: pageSize, Needs: "Blobs"}

// encodedName matches the name of a blob with characters that are invalid in XML.
var encodedName = regexp.MustCompile(`<Name Encoded="true">[^<]*`)

// checkPage checks a page. It replaces + by %2B in encoded names, because the SDK would
// decode + as a space.
func checkPage(resp *http.Response, text []byte) ([]byte, error) {
	text, err := pages.Check(resp, text)
	return encodedName.ReplaceAllFunc(text, func(name []byte) []byte { return bytes.ReplaceAll(name, []byte("+"), []byte("%2B")) }), err
}

// hints tell the user what to do about a refusal, by its code.
var hints = map[string]string{
	"AccountIsDisabled":                  "enable the storage account",
	"AuthenticationFailed":               "check the credentials, and the clock of this machine, and whether a shared access signature has expired",
	"AuthorizationFailure":               "check the credentials, the role of the identity, and the firewall of the storage account",
	"AuthorizationPermissionMismatch":    "give the identity the role Storage Blob Data Reader, or the shared access signature the permissions r and l",
	"AuthorizationProtocolMismatch":      "the shared access signature is good over https only: use that in spec.endpoint",
	"AuthorizationResourceTypeMismatch":  "the shared access signature must be for containers and objects (srt=co)",
	"AuthorizationServiceMismatch":       "the shared access signature must be for blobs (ss=b)",
	"AuthorizationSourceIPMismatch":      "the shared access signature is for other addresses than this one",
	"BlobArchived":                       "the blob is of tier Archive: rehydrate it, or exclude it with spec.ignore",
	"BlobBeingRehydrated":                "the blob comes back from tier Archive, which takes hours",
	"ContainerBeingDeleted":              "check spec.bucketName",
	"ContainerNotFound":                  "check spec.bucketName, and the account in spec.endpoint",
	"InsufficientAccountPermissions":     "give the identity the role Storage Blob Data Reader",
	"InvalidAuthenticationInfo":          "check the credentials, and the clock of this machine",
	"InvalidResourceName":                "check spec.bucketName",
	"KeyBasedAuthenticationNotPermitted": "the storage account accepts no keys: use an identity",
	"NoAuthenticationInformation":        "name a Secret with credentials in spec.secretRef",
	"PublicAccessNotPermitted":           "name a Secret with credentials in spec.secretRef",
	"ResourceNotFound":                   "check spec.bucketName, and name a Secret in spec.secretRef unless the container is public",
	"UnsupportedSignedExpiry":            "check the shared access signature",
}
