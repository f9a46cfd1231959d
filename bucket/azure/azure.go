// Package azure reads containers of Azure Blob Storage (provider azure)
// (reference A10).
//
// # Endpoint
//
// spec.endpoint is the URL of the storage account, of any cloud or emulator, and
// spec.bucketName the container, $root, $web and $logs included. A path is the
// name of the account, as emulators have it: http://127.0.0.1:10000/ACCOUNT.
// Without one, the account is the first label of the host. A query is a shared
// access signature.
//
// # Credentials
//
// The first of these that is there:
//
//   - spec.secretRef with an application (tenantId, clientId and clientSecret or
//     clientCertificate), a managed identity (clientId alone), the key of the
//     account (accountKey), or a shared access signature (sasKey), whose parts
//     take the place of those in spec.endpoint
//   - the shared access signature in spec.endpoint
//   - the identity of the program, where it has one for that host, see package
//     source/login/azure; one that is refused is an error
//   - none: the container is public
//
// Bearer tokens go over TLS only, or to this machine: they are good for every
// account that the identity may use, so spec.insecure does not unprotect them.
// Those of a managed identity, which is the machine's, go to Azure's own hosts
// only, that the system trusts, or to this machine. What authorityHost names is
// asked as it is, without asking the public cloud whether it is known.
// A token that ends or is refused while the bucket is read is issued again, once.
//
// # Objects
//
//   - A blob is listed as it is now: no snapshots, versions or deleted blobs.
//   - Directories, those of hierarchical namespaces and those that tools make
//     (metadata hdi_isfolder), are directory markers.
//   - A blob is read as it is stored: what Content-Encoding says is not undone.
//   - A blob of tier Archive cannot be read until it is rehydrated.
//
// # Limits
//
// A page of the listing has at most 16 MiB. Redirects are not followed.
package azure

import (
	"context"
	"errors"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// Connect is a [bucket.Provider].
func Connect(ctx context.Context, a *bucket.Access) (bucket.Driver, error) {
	at, err := placeOf(a)
	if err != nil {
		return nil, err
	}
	keys, err := keysOf(a, &at)
	if err != nil {
		return nil, refused("AuthenticationFailed", err)
	}
	who, err := identify(ctx, a, at, keys)
	if err != nil {
		return nil, err
	}
	c, err := open(a, at, keys, who)
	if err != nil {
		return nil, refused("InvalidProviderConfiguration", errors.New(said(err.Error(), a)))
	}
	return &driver{container: c, access: a, anonymous: who == nil && keys.Account == "" && at.query == nil}, nil
}

func refused(reason string, err error) error {
	if _, ok := errors.AsType[*source.StepError](err); ok {
		return err
	}
	return &source.StepError{Step: source.StepResolve, Reason: reason, Err: err}
}

// keysOf returns what spec.secretRef holds; a shared access signature in it goes into at.
func keysOf(a *bucket.Access, at *place) (transport.Azure, error) {
	if a.Secret.Name == "" {
		return transport.Azure{}, nil
	}
	keys, err := transport.AzureKeys(a.Secret.Name, a.Secret.Secret)
	if err != nil {
		return keys, fmt.Errorf("spec.secretRef: %w", err)
	}
	a.Vault.Conceal(keys.Account)
	if keys.SAS == "" {
		at.query = nil // what the Secret holds is the credential
		return keys, nil
	}
	if err := at.merge(keys.SAS, a.Vault); err != nil {
		return keys, fmt.Errorf("spec.secretRef: secret %s: %w", a.Secret.Name, err)
	}
	return keys, nil
}

// version of the service's protocol: one that has all that is asked for, and is
// so old that emulators and private clouds know it.
const version = "2021-12-02"

// open returns the client of a container. The SDK neither sends requests again,
// nor tells what it is, nor judges who is shown a token.
func open(a *bucket.Access, at place, keys transport.Azure, who *bucket.Bearer) (*container.Client, error) {
	client := *a.Client(at.server, a.Way)
	if who != nil {
		who.Next = client.Transport
		client.Transport = who
	}
	client.Transport = &guard{client.Transport}
	o := &container.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport:       &client,
		Retry:           policy.RetryOptions{MaxRetries: -1},
		Telemetry:       policy.TelemetryOptions{Disabled: true},
		PerCallPolicies: []policy.Policy{header{"x-ms-version", version}},
	}}
	if keys.Account == "" {
		return container.NewClientWithNoCredential(at.url(), o)
	}
	key, err := container.NewSharedKeyCredential(at.account, keys.Account)
	if err != nil {
		return nil, err
	}
	return container.NewClientWithSharedKeyCredential(at.url(), key, o)
}
