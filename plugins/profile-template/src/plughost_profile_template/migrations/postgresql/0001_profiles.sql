CREATE TABLE profiles (
    owner VARCHAR(255) NOT NULL PRIMARY KEY,
    user_id VARCHAR(36) NOT NULL UNIQUE,
    display_name VARCHAR(100) NOT NULL,
    email VARCHAR(255),
    profile_image_url VARCHAR(2000),
    date_joined BIGINT NOT NULL,
    fitness_level VARCHAR(20) NOT NULL,
    height_cm DOUBLE PRECISION,
    weight_kg DOUBLE PRECISION,
    date_of_birth BIGINT,
    gender VARCHAR(20) NOT NULL,
    is_premium BOOLEAN NOT NULL,
    use_metric_system BOOLEAN NOT NULL,
    enable_notifications BOOLEAN NOT NULL,
    dark_mode_preference VARCHAR(20) NOT NULL,
    rest_timer_duration INTEGER NOT NULL,
    updated_at BIGINT NOT NULL
);
