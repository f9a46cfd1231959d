package azure

import (
	"bytes"
	"io"
	"io/fs"
	"net/http"
	"regexp"

	"github.com/headgate-io/headgate/bucket"
)

const maxPage = 16 << 20 // bytes: blobs with the longest names and metadata

var pages = bucket.XMLPage{Root: "EnumerationResults", Item: "Blob", Items: pageSize, Needs: "Blobs", Limit: maxPage}

// A guard checks answers before the SDK reads them, and has objects sent as they are stored.
type guard struct {
	next      http.RoundTripper
	access    *bucket.Access
	anonymous bool // no credentials are sent
}

// RoundTrip implements [http.RoundTripper].
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	query := req.URL.Query()
	if err := bucket.NextPage(req.Context(), query.Get("marker")); err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("User-Agent", "headgate")
	resp, err := g.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Header.Del("X-Ms-Structured-Body") // a framing that was not asked for, and that the SDK would undo
	switch {
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent:
		e := g.access.Refused(resp, hints)
		if g.anonymous && (e.Is(fs.ErrPermission) || e.Is(fs.ErrNotExist) || e.Status == http.StatusConflict) {
			e.Hint = "no credentials were sent: name a Secret in spec.secretRef unless the container is public"
		}
		return nil, e
	case query.Get("comp") == "list":
		if err := checkPage(resp); err != nil {
			resp.Body.Close()
			return nil, err
		}
	}
	return resp, nil
}

// encodedName is the name of a blob that has characters which XML has not.
var encodedName = regexp.MustCompile(`<Name Encoded="true">[^<]*`)

// checkPage checks a page, and spells + in encoded names as the SDK reads it.
func checkPage(resp *http.Response) error {
	if err := pages.Check(resp); err != nil {
		return err
	}
	text, err := io.ReadAll(resp.Body) // of memory
	bucket.SetPage(resp, encodedName.ReplaceAllFunc(text, func(name []byte) []byte { return bytes.ReplaceAll(name, []byte("+"), []byte("%2B")) }))
	return err
}

// hints say what to do about an answer, by its code.
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
	"UnsupportedSignedExpiry":            "check the shared access signature",
}
