-- Every code that was ever seen. It is claimed before anything else is written of a tender, and it stays when the tender is archived.
CREATE TABLE licitacion_registry (
    codigo_externo text PRIMARY KEY CHECK (length(codigo_externo) BETWEEN 1 AND 64),
    claimed_at     timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE licitaciones (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    codigo_externo    text NOT NULL UNIQUE REFERENCES licitacion_registry,
    nombre            text,
    organismo         text,
    region            text,
    rubro             text,
    descripcion       text,
    monto             bigint CHECK (monto > 0),             -- pesos, which have no cents
    fecha_publicacion timestamptz,
    fecha_cierre      timestamptz,
    url               text,
    notificada        boolean NOT NULL DEFAULT false,       -- set when the first push was sent, and never taken back
    notificada_at     timestamptz,
    created_at        timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX licitaciones_created ON licitaciones (created_at);

CREATE TABLE device_installations (
    installation_id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    secret_sha256   bytea NOT NULL,                         -- of the key with which the application on the phone comes back
    push_token      text NOT NULL,
    platform        text NOT NULL CHECK (platform IN ('android', 'ios')),
    active          boolean NOT NULL DEFAULT true,
    inactive_since  timestamptz,
    inactive_reason text,
    created_at      timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX device_installations_token ON device_installations (push_token) WHERE active;

CREATE TABLE notification_preferences (
    installation_id uuid PRIMARY KEY REFERENCES device_installations,
    enabled         boolean NOT NULL DEFAULT true,
    regiones        text[] NOT NULL DEFAULT '{}',
    rubros          text[] NOT NULL DEFAULT '{}',
    palabras        text[] NOT NULL DEFAULT '{}',
    monto_minimo    bigint,
    updated_at      timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE notification_events (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    type          text NOT NULL,
    licitacion_id bigint NOT NULL REFERENCES licitaciones,
    created_at    timestamptz NOT NULL DEFAULT now(),
    UNIQUE (licitacion_id, type)
);
CREATE INDEX notification_events_created ON notification_events (created_at);

-- There is no locked_at and no locked_by: the job of a delivery has a lease.
CREATE TABLE notification_deliveries (
    id                    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    notification_event_id bigint NOT NULL REFERENCES notification_events,
    installation_id       uuid NOT NULL REFERENCES device_installations,
    delivery_key          uuid NOT NULL DEFAULT gen_random_uuid(),  -- sent with every push of this delivery
    status                text NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'sent', 'retryable', 'ok', 'failed', 'invalid')),
    provider              text NOT NULL,
    attempt_count         integer NOT NULL DEFAULT 0,
    next_attempt_at       timestamptz,
    last_error_code       text,
    last_error_message    text,
    provider_ticket_id    text,
    provider_receipt_id   text,
    sent_at               timestamptz,
    created_at            timestamptz NOT NULL DEFAULT now(),
    updated_at            timestamptz NOT NULL DEFAULT now(),
    completed_at          timestamptz,
    UNIQUE (notification_event_id, installation_id),
    CHECK ((completed_at IS NOT NULL) = (status IN ('ok', 'failed', 'invalid')))
);
CREATE INDEX notification_deliveries_installation ON notification_deliveries (installation_id, id);
CREATE INDEX notification_deliveries_completed ON notification_deliveries (completed_at);
