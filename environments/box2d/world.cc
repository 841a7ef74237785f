/* The bodies of LunarLander in Box2D: see world.h. The shapes, masses and joints are those of
 * Gymnasium (gymnasium/envs/box2d/lunar_lander.py, version 1.x), whose units are pixels: 30 to 1 m. */
#include "environments/box2d/world.h"

#include <box2d/box2d.h>

namespace {

constexpr float pixel = 1 / 30.0f;
constexpr float width = 600 * pixel, height = 400 * pixel;

enum category : uint16 {
    GROUND = 0x0001,
    HULL = 0x0010,
    LEG = 0x0020
};

} // namespace

struct lander_world : b2ContactListener {
    b2World world;
    b2Body *lander = nullptr;
    b2Body *leg[2] = {};
    bool on_ground[2] = {};
    bool touched = false;

    explicit lander_world(float gravity) : world(b2Vec2(0, gravity))
    {
        world.SetContactListener(this);
    }

    void BeginContact(b2Contact *contact) override
    {
        notice(contact, true);
    }
    void EndContact(b2Contact *contact) override
    {
        notice(contact, false);
    }

  private:
    void notice(b2Contact *contact, bool begins)
    {
        b2Body *const bodies[] = {contact->GetFixtureA()->GetBody(),
                                  contact->GetFixtureB()->GetBody()};
        for (const b2Body *body : bodies) {
            touched = touched || (begins && body == lander);
            for (int i = 0; i < 2; i++)
                if (body == leg[i])
                    on_ground[i] = begins;
        }
    }
};

namespace {

void
make_ground(lander_world *w, const float *heights)
{
    b2BodyDef def;
    b2Body *ground = w->world.CreateBody(&def);
    b2EdgeShape edge;
    b2FixtureDef fixture;
    fixture.shape = &edge;
    edge.SetTwoSided(b2Vec2(0, 0), b2Vec2(width, 0));
    ground->CreateFixture(&fixture);
    fixture.friction = 0.1f;
    const float step = width / (LANDER_POINTS - 1);
    for (int i = 0; i + 1 < LANDER_POINTS; i++) {
        edge.SetTwoSided(b2Vec2(step * static_cast<float>(i), heights[i]),
                         b2Vec2(step * static_cast<float>(i + 1), heights[i + 1]));
        ground->CreateFixture(&fixture);
    }
}

b2Body *
make_body(lander_world *w, float x, float angle, const b2PolygonShape &shape, float density,
          float friction, category bits)
{
    b2BodyDef def;
    def.type = b2_dynamicBody;
    def.position.Set(x, height);
    def.angle = angle;
    b2Body *body = w->world.CreateBody(&def);
    b2FixtureDef fixture;
    fixture.shape = &shape;
    fixture.density = density;
    fixture.friction = friction;
    fixture.filter.categoryBits = bits;
    fixture.filter.maskBits = GROUND;
    body->CreateFixture(&fixture);
    return body;
}

/* side: -1 or 1. A motor presses the leg outwards; it gives way between two angles. */
b2Body *
make_leg(lander_world *w, float side)
{
    b2PolygonShape box;
    box.SetAsBox(2 * pixel, 8 * pixel);
    b2Body *leg = make_body(w, width / 2 - side * 20 * pixel, side * 0.05f, box, 1, 0.2f, LEG);
    b2RevoluteJointDef joint;
    joint.bodyA = w->lander;
    joint.bodyB = leg;
    joint.localAnchorB.Set(side * 20 * pixel, 18 * pixel);
    joint.enableMotor = joint.enableLimit = true;
    joint.maxMotorTorque = 40;
    joint.motorSpeed = 0.3f * side;
    joint.lowerAngle = side < 0 ? 0.4f : -0.9f;
    joint.upperAngle = side < 0 ? 0.9f : -0.4f;
    w->world.CreateJoint(&joint);
    return leg;
}

} // namespace

/* The first contact of a process fills Box2D's table of kinds of contacts: a world whose lander
 * begins on the ground has one. */
void
lander_world_prepare(void)
{
    float heights[LANDER_POINTS];
    for (float &h : heights)
        h = height;
    lander_world *w = lander_world_new(heights, -10);
    lander_world_step(w);
    lander_world_free(w);
}

lander_world *
lander_world_new(const float *heights, float gravity)
{
    static const float hull[][2] = {{-14, 17}, {-17, 0}, {-17, -10}, {17, -10}, {17, 0}, {14, 17}};
    b2Vec2 corners[6];
    for (int i = 0; i < 6; i++)
        corners[i].Set(hull[i][0] * pixel, hull[i][1] * pixel);
    b2PolygonShape shape;
    shape.Set(corners, 6);
    lander_world *w = new lander_world(gravity);
    make_ground(w, heights);
    w->lander = make_body(w, width / 2, 0, shape, 5, 0.1f, HULL);
    for (int i = 0; i < 2; i++)
        w->leg[i] = make_leg(w, i == 0 ? -1.0f : 1.0f);
    return w;
}

void
lander_world_free(lander_world *w)
{
    delete w;
}

void
lander_world_push(lander_world *w, float x, float y, float torque)
{
    w->lander->ApplyForceToCenter(b2Vec2(x, y), true);
    w->lander->ApplyTorque(torque, true);
}

void
lander_world_kick(lander_world *w, float x, float y, float at_x, float at_y)
{
    w->lander->ApplyLinearImpulse(b2Vec2(x, y), b2Vec2(at_x, at_y), true);
}

void
lander_world_step(lander_world *w)
{
    w->world.Step(1 / 50.0f, 6 * 30, 2 * 30);
}

void
lander_world_read(const lander_world *w, lander_reading *out)
{
    const b2Vec2 &at = w->lander->GetPosition(), &speed = w->lander->GetLinearVelocity();
    *out = lander_reading{at.x,
                          at.y,
                          speed.x,
                          speed.y,
                          w->lander->GetAngle(),
                          w->lander->GetAngularVelocity(),
                          {w->on_ground[0], w->on_ground[1]},
                          w->touched,
                          !w->lander->IsAwake()};
}
