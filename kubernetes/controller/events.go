package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/headgate-io/headgate/source"
)

// startEvents starts writing Events. The caller must call stop.
func (c *controller) startEvents(ctx context.Context) (stop func(), err error) {
	api, err := corev1client.NewForConfigAndClient(c.mgr.GetConfig(), c.mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: api.Events("")})
	c.events = broadcaster.NewRecorder(c.mgr.GetScheme(), corev1.EventSource{Component: c.name})
	return broadcaster.Shutdown, nil
}

// record writes an event as an Event. The server has already removed repetitions.
func (c *controller) record(e source.Event) {
	about := e.InvolvedObject
	if e.Severity == source.SeverityTrace || about.Name == "" {
		return
	}
	kind := corev1.EventTypeNormal
	if e.Severity == source.SeverityError {
		kind = corev1.EventTypeWarning
	}
	to := &corev1.ObjectReference{APIVersion: about.APIVersion, Kind: about.Kind, Namespace: about.Namespace, Name: about.Name, UID: types.UID(about.UID)}
	c.events.AnnotatedEventf(to, e.Metadata, kind, e.Reason, "%s", e.Message)
}
